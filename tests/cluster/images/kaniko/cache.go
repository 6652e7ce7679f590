package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
)

// cache keeps the layers of RUN instructions in a repository. As with the real executor each is an image of one layer,
// whose tag is a hash of the base image, the instructions so far and the files that were copied.
type cache struct {
	options *registryOptions
	where   string // repository; nothing is kept where empty
	key     string
}

// extend makes the key that of the next instruction.
func (c *cache) extend(text string) {
	c.key = fmt.Sprintf("%x", sha256.Sum256([]byte(c.key+"\x00"+text)))
}

// extendByFiles does so for a file that is copied, or for all that are below a folder.
func (c *cache) extendByFiles(source string) error {
	return filepath.WalkDir(source, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		c.extend(strings.TrimPrefix(path, source) + "\x00" + string(content))
		return nil
	})
}

func (c *cache) tag() (name.Tag, []remote.Option, error) {
	tag, transport, err := c.options.destination(c.where + ":" + c.key)
	return tag, []remote.Option{remote.WithTransport(transport), remote.WithAuthFromKeychain(authn.DefaultKeychain)}, err
}

// find is the layer that the instruction made before, or nil.
func (c *cache) find(ctx context.Context, command instructions.Command) (v1.Layer, error) {
	if c.where == "" {
		return nil, nil
	}
	tag, reach, err := c.tag()
	if err != nil {
		return nil, err
	}
	info("Checking for cached layer %s...", tag)
	image, err := remote.Image(tag, append(reach, remote.WithContext(ctx))...)
	var answer *transport.Error
	if errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound {
		info("No cached layer found for cmd %s", command)
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the cache: %w", err)
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		return nil, fmt.Errorf("%s is no layer of a cache: %d layers (%w)", tag, len(layers), err)
	}
	info("Using caching version of cmd: %s", command)
	return layers[0], nil
}

// keep pushes the layer that the instruction made.
func (c *cache) keep(ctx context.Context, layer v1.Layer) error {
	if c.where == "" {
		return nil
	}
	tag, reach, err := c.tag()
	if err != nil {
		return err
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return err
	}
	info("Pushing layer %s to cache now", tag)
	if err := remote.Write(tag, image, append(reach, remote.WithContext(ctx))...); err != nil {
		return fmt.Errorf("writing the cache: %w", err)
	}
	return nil
}
