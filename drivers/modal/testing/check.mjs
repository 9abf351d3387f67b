// Drives the double with Modal's own JavaScript client, which knows nothing of it.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

// The client is installed in a cache directory, not beside this file.
const installed = createRequire(`${process.env.MODAL_JS_DIR}/package.json`).resolve("modal");
const modal = await import(pathToFileURL(installed).href);
const { ModalClient } = modal.default ?? modal;

function expect(what, got, want) {
  assert.deepEqual(got, want, what);
  console.log(`ok   ${what}`);
}

async function expectError(what, call) {
  const error = await call().then(() => assert.fail(`${what}: no error`), (e) => e);
  console.log(`ok   ${what}: ${error.constructor.name}`);
}

const client = new ModalClient();
const app = await client.apps.fromName("vendor-check-js", { createIfMissing: true });
const image = client.images.fromRegistry("python:3.12-slim");
const sandbox = await client.sandboxes.create(app, image, {
  name: "js-box", tags: { kind: "check" }, timeoutMs: 120_000, workdir: "/work", env: { FROM: "create" },
});

let process_ = await sandbox.exec(["sh", "-c", "echo out; echo err >&2; exit 3"]);
expect("stdout", await process_.stdout.readText(), "out\n");
expect("stderr", await process_.stderr.readText(), "err\n");
expect("exit code", await process_.wait(), 3);

process_ = await sandbox.exec(["sh", "-c", "printenv FROM; pwd"]);
expect("environment and workdir", await process_.stdout.readText(), "create\n/work\n");

process_ = await sandbox.exec(["wc", "-c"], { mode: "binary" });
await process_.stdin.writeBytes(new Uint8Array(1 << 20));
await process_.stdin.close();
expect("binary stdin", new TextDecoder().decode(await process_.stdout.readBytes()).trim(), String(1 << 20));

process_ = await sandbox.exec(["sleep", "60"], { timeoutMs: 1000 });
const timeout = await process_.wait().catch((error) => error);
assert(timeout === 137 || timeout instanceof Error, `command timeout: ${timeout}`);
console.log("ok   command timeout");

const content = new Uint8Array(1 << 21).map((_, i) => i);
await sandbox.filesystem.writeBytes(content, "/data/deep/blob");
expect("file round trip", Buffer.from(await sandbox.filesystem.readBytes("/data/deep/blob")), Buffer.from(content));
expect("stat", (await sandbox.filesystem.stat("/data/deep/blob")).size, content.length);
expect("list", (await sandbox.filesystem.listFiles("/data")).map((f) => f.name), ["deep"]);
await expectError("missing file", () => sandbox.filesystem.readBytes("/data/none"));

const other = await client.sandboxes.create(app, image, { tags: { kind: "other" }, blockNetwork: true });
const listed = [];
for await (const found of client.sandboxes.list({ appId: app.appId, tags: { kind: "check" } })) listed.push(found.sandboxId);
expect("list by tag", listed, [sandbox.sandboxId]);
expect("from name", (await client.sandboxes.fromName("vendor-check-js", "js-box")).sandboxId, sandbox.sandboxId);
await other.terminate();

expect("still running", await sandbox.poll(), null);
expect("terminate", await sandbox.terminate({ wait: true }), 137);
const ended = await client.sandboxes.fromId(sandbox.sandboxId);
await expectError("exec after the end", () => ended.exec(["true"]));

const short = await client.sandboxes.create(app, image, { timeoutMs: 1000 });
expect("lifetime", await short.wait(), 124);
client.close();
