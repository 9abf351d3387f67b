//go:build linux

package main

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// createdAndRemoved is what a run of measureCreate measures.
const (
	created = iota
	removed
)

func measureCreate(ctx context.Context, l *lab) ([]row, error) {
	local, err := l.local(ctx)
	if err != nil {
		return nil, err
	}
	bare, err := l.bare(ctx)
	if err != nil {
		return nil, err
	}
	engine, err := l.docker(ctx)
	if err != nil {
		return nil, err
	}
	image, err := l.image(ctx)
	if err != nil {
		return nil, err
	}
	variants := []variant{
		local.lifecycle("local driver"),
		lifecycle("bare runsc run -detach, delete -force", bare.create, bare.remove),
		lifecycle("docker run -d, rm -f", engine.create, engine.remove),
		local.lifecycle("local driver, open network", "--network", "open"),
		local.lifecycle("local driver, image that is there", "--image", image),
	}
	variants[2].absent = engine.absent
	measured, err := interleave(ctx, l.runs, variants)
	if err != nil {
		return nil, err
	}
	creates := rows("create", unitTime, variants, measured, created)
	creates[0].budget = overBare(createOverhead, creates)
	creates[3].budget = over(createOverhead, creates[3], creates[1])
	creates[4].budget = over(createOverhead+imageOverhead, creates[4], creates[1])
	return append(creates, rows("rm", unitTime, variants, measured, removed)...), nil
}

// lifecycle is that of a sandbox that create makes with these flags.
func (h *home) lifecycle(name string, flags ...string) variant {
	return lifecycle(name,
		func(ctx context.Context, name string) (time.Duration, error) {
			return h.lab.timed(h.command(ctx, append([]string{"create", "--driver", "local", "--name", name}, flags...)...))
		},
		func(ctx context.Context, name string) (time.Duration, error) {
			return h.lab.timed(h.command(ctx, "rm", name))
		})
}

// image returns a reference to an image with a tree of programs, in the layout of OCI.
func (l *lab) image(ctx context.Context) (string, error) {
	if _, err := l.timed(exec.CommandContext(ctx, "tar", "-C", "/", "-cf", l.path("layer.tar"), "usr/sbin")); err != nil {
		return "", err
	}
	base, err := tarball.LayerFromFile(l.path("layer.tar"))
	if err != nil {
		return "", err
	}
	image, err := mutate.AppendLayers(empty.Image, base)
	if err != nil {
		return "", err
	}
	index := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: image})
	_, err = layout.Write(l.path("image"), index)
	return "oci:" + l.path("image"), err
}

// lifecycle makes a sandbox and removes it again. Each has a name of its own.
func lifecycle(name string, create, remove func(context.Context, string) (time.Duration, error)) variant {
	count := 0
	return variant{name: name, run: func(ctx context.Context) ([]float64, error) {
		count++
		sandbox := fmt.Sprintf("lifecycle-%d", count)
		creating, err := create(ctx, sandbox)
		if err != nil {
			return nil, err
		}
		removing, err := remove(ctx, sandbox)
		return []float64{created: milliseconds(creating), removed: milliseconds(removing)}, err
	}}
}
