package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"kubectl-ray/tests/cluster/images/layer"

	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
)

func announce() {
	info("stand-in for kaniko's executor: for tests only, one stage")
}

// execute is the whole run: the right to push, the build, the results. Its errors have the real executor's beginnings.
func execute(ctx context.Context, o *options) error {
	announce()
	if err := contained(); err != nil {
		return err
	}
	if !o.noPush {
		if err := o.checkPushPermissions(); err != nil {
			return fmt.Errorf("error checking push permissions: %w", err)
		}
	}
	providers()
	image, err := build(ctx, o)
	if err != nil {
		return fmt.Errorf("error building image: %w", err)
	}
	if o.layoutPath != "" {
		if err := writeLayout(o.layoutPath, image); err != nil {
			return fmt.Errorf("error pushing image: writing OCI layout: %w", err)
		}
	}
	if o.noPush {
		o.destinations = nil
	}
	if err := o.push(ctx, image); err != nil {
		return fmt.Errorf("error pushing image: %w", err)
	}
	return nil
}

// contained refuses to run anywhere but in an empty container, because the build overwrites the root folder.
func contained() error {
	path, err := os.Executable()
	if err != nil {
		return err
	}
	if _, err := os.Stat("/usr/bin"); path != "/kaniko/executor" || !errors.Is(err, os.ErrNotExist) {
		return errors.New("kaniko should only be run inside of a container: the stand-in runs as /kaniko/executor on an otherwise empty root")
	}
	return nil
}

func writeLayout(path string, image v1.Image) error {
	out, err := layout.Write(path, empty.Index)
	if err != nil {
		return err
	}
	return out.AppendImage(image)
}

// builder is the state between two instructions.
type builder struct {
	options *options
	image   v1.Image
	config  *v1.ConfigFile
	args    map[string]string // declared by ARG
	shell   []string
	root    root
	tree    layer.Tree // the file system as of the last snapshot
	layers  int
	top     v1.Layer // of the last snapshot; nil where it changed nothing
	cache   cache
}

func build(ctx context.Context, o *options) (v1.Image, error) {
	stage, metaArgs, err := parse(o.dockerfile)
	if err != nil {
		return nil, fmt.Errorf("parsing dockerfile: %w", err)
	}
	args := given(o.buildArgs)
	from, err := fromImage(stage, metaArgs, args)
	if err != nil {
		return nil, err
	}
	b := &builder{options: o, args: map[string]string{}, shell: []string{"/bin/sh", "-c"}, cache: cache{options: &o.registryOptions}}
	if o.cache {
		b.cache.where = o.cacheRepo
	}
	if b.root, err = currentRoot(o.ignorePaths); err != nil {
		return nil, err
	}
	if err := b.start(ctx, from); err != nil {
		return nil, err
	}
	info("Building stage '%s' [idx: '0', base-idx: '-1']", from)
	if first := firstThatNeedsFiles(stage); first != nil {
		info("Unpacking rootfs as cmd %s requires it.", first)
		if err := b.root.unpack(b.image); err != nil {
			return nil, fmt.Errorf("error building stage: failed to get filesystem from image: %w", err)
		}
		info("Initializing snapshotter ...")
		info("Taking snapshot of full filesystem...")
		if b.tree, err = b.root.scan(); err != nil {
			return nil, fmt.Errorf("error building stage: failed to take snapshot: %w", err)
		}
	}
	for _, command := range stage.Commands {
		if err := b.execute(ctx, command, args); err != nil {
			return nil, fmt.Errorf("error building stage: failed to execute command: %w", err)
		}
	}
	return b.finish()
}

// start takes the base image, or nothing for scratch, as what the stage begins with.
func (b *builder) start(ctx context.Context, from string) error {
	b.image = mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if from != "scratch" {
		platform, err := basePlatform(b.options.platform)
		if err != nil {
			return err
		}
		if b.image, err = b.options.base(ctx, from, platform); err != nil {
			return err
		}
	}
	digest, err := b.image.Digest()
	if err != nil {
		return err
	}
	b.cache.extend(digest.String())
	config, err := b.image.ConfigFile()
	if err != nil {
		return err
	}
	b.config = config.DeepCopy()
	if len(b.config.Config.Shell) > 0 {
		b.shell = b.config.Config.Shell
	}
	return nil
}

func basePlatform(text string) (*v1.Platform, error) {
	if text == "" {
		text = "linux/" + architecture
	}
	platform, err := v1.ParsePlatform(text)
	if err != nil {
		return nil, fmt.Errorf("invalid platform %q: %w", text, err)
	}
	return platform, nil
}

// snapshot adds what the instruction changed as a layer; without a change there is only history.
func (b *builder) snapshot(command instructions.Command) error {
	now, err := b.root.scan()
	if err != nil {
		return err
	}
	changed, removed := layer.Diff(b.tree, now)
	b.tree, b.top = now, nil
	if len(changed)+len(removed) == 0 {
		info("No files were changed, appending empty layer to config. No layer added to image.")
		return b.record(command)
	}
	media, err := b.image.MediaType()
	if err != nil {
		return err
	}
	layerMedia := types.DockerLayer
	if media == types.OCIManifestSchema1 {
		layerMedia = types.OCILayer
	}
	if err := os.MkdirAll(layersFolder, 0o700); err != nil {
		return err
	}
	b.layers++
	content, err := layer.Create(filepath.Join(layersFolder, fmt.Sprint(b.layers)), "/", changed, removed, layerMedia)
	if err != nil {
		return err
	}
	b.top = content
	return b.add(content, layerMedia, command)
}

func (b *builder) add(content v1.Layer, media types.MediaType, command instructions.Command) (err error) {
	b.image, err = mutate.Append(b.image, mutate.Addendum{Layer: content, MediaType: media, History: history(command, false)})
	return err
}

// reuse takes a layer from the cache as what the instruction makes.
func (b *builder) reuse(content v1.Layer, command instructions.Command) error {
	media, err := content.MediaType()
	if err != nil {
		return err
	}
	if err := b.root.unpackLayer(content); err != nil {
		return fmt.Errorf("unpacking the cached layer: %w", err)
	}
	if b.tree, err = b.root.scan(); err != nil {
		return err
	}
	return b.add(content, media, command)
}

// layersFolder is below /kaniko, which no snapshot includes.
const layersFolder = "/kaniko/layers"

// record adds an instruction that made no layer to the history.
func (b *builder) record(command instructions.Command) (err error) {
	b.image, err = mutate.Append(b.image, mutate.Addendum{History: history(command, true)})
	return err
}

func history(command instructions.Command, empty bool) v1.History {
	return v1.History{Author: "kaniko", CreatedBy: fmt.Sprint(command), Created: v1.Time{Time: time.Now()}, EmptyLayer: empty}
}

// finish joins the layers with the configuration.
func (b *builder) finish() (v1.Image, error) {
	built, err := b.image.ConfigFile()
	if err != nil {
		return nil, err
	}
	b.config.RootFS, b.config.History = built.RootFS, built.History
	b.config.Created = v1.Time{Time: time.Now()}
	for name, value := range given(b.options.labels) {
		b.label(name, value)
	}
	return mutate.ConfigFile(b.image, b.config)
}
