#!/usr/bin/env node
// The loop of agent.py for Node: the model proposes commands, sandboxctl runs them.
//
// Usage: agent.mjs TASK MODEL [ARG...]; see agent.py for what MODEL is.

import { spawnSync } from "node:child_process";

const TURNS = 20;

function run(program, args, input) {
  const done = spawnSync(program, args, { input, encoding: "utf8", stdio: ["pipe", "pipe", "inherit"] });
  if (done.error) throw done.error;
  return done;
}

// Calls sandboxctl and returns its JSON; what it could not do is an exception.
function sandboxctl(command, ...args) {
  const result = JSON.parse(run("sandboxctl", [command, "--json", ...args], "").stdout);
  if (!result.ok) {
    const { class: kind, message, hint } = result.error;
    throw new Error(`${kind}: ${message} ${hint ?? ""}`);
  }
  return result;
}

function ask([program, ...args], conversation) {
  const done = run(program, args, JSON.stringify(conversation));
  if (done.status !== 0) throw new Error(`the model ended with exit code ${done.status}`);
  return JSON.parse(done.stdout);
}

// Says to the model what it needs to correct itself.
function describe(result) {
  const parts = [];
  for (const stream of ["stdout", "stderr"]) {
    const cut = result[`${stream}_truncated`] ? "[earlier output was cut]\n" : "";
    if (result[stream]) parts.push(`[${stream}]\n${cut}${result[stream]}`);
  }
  if (result.reason === "timed_out") parts.push(`[killed after ${result.applied_timeout_s} s]`);
  else if (result.exit_code !== 0) parts.push(`[exit code ${result.exit_code}]`);
  return parts.join("\n") || "(no output)";
}

function main([task, ...model]) {
  // The lease ends the sandbox even if this program is killed.
  const sandbox = sandboxctl("create", "--ttl", "30m", "--label", "made-by=agent.mjs").name;
  const conversation = [{ role: "user", content: task }];
  try {
    for (let turn = 0; turn < TURNS; turn++) {
      const reply = ask(model, conversation);
      if ("answer" in reply) {
        console.log(reply.answer);
        return 0;
      }
      const result = sandboxctl("exec", "--timeout", "60s", "--shell", sandbox, "--", reply.command);
      conversation.push({ role: "assistant", content: reply.command }, { role: "tool", content: describe(result) });
    }
    console.error(`There is no answer after ${TURNS} turns.`);
    return 1;
  } finally {
    sandboxctl("rm", "--force", sandbox);
  }
}

process.exitCode = main(process.argv.slice(2));
