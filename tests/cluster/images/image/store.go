package main

import (
	"io"
	"os"
	"path/filepath"
	"runtime"

	"kubectl-ray/tests/cluster/images/layer"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/spf13/cobra"
)

const architecture = runtime.GOARCH

func storeCommand() *cobra.Command {
	var config runtimeConfig
	cmd := &cobra.Command{
		Use:   "store ROOTFS NAME:TAG STORAGE",
		Short: "pack a folder into an image, laid out as a registry's file system storage",
		Args:  cobra.ExactArgs(3),
		RunE: func(_ *cobra.Command, args []string) error {
			tag, err := name.NewTag(args[1])
			if err != nil {
				return err
			}
			scratch, err := os.MkdirTemp(args[2], ".layer-")
			if err != nil {
				return err
			}
			defer os.RemoveAll(scratch)
			image, err := fromFolder(args[0], filepath.Join(scratch, "layer"), &config)
			if err != nil {
				return err
			}
			return storage{args[2]}.put(image, tag)
		},
	}
	config.flags(cmd)
	return cmd
}

// fromFolder packs the folder as one layer; zstd, because unpacking it is what a test waits for.
func fromFolder(root, layerFile string, config *runtimeConfig) (v1.Image, error) {
	tree, err := layer.Scan(root, nil)
	if err != nil {
		return nil, err
	}
	content, err := layer.Create(layerFile, root, tree.Paths(), nil, types.OCILayerZStd)
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image, mutate.Addendum{Layer: content, History: v1.History{CreatedBy: "image store"}})
	if err != nil {
		return nil, err
	}
	return config.apply(image)
}

// storage is a folder in the layout of the registry's file system driver (distribution, version 2 paths).
type storage struct{ root string }

func (s storage) put(image v1.Image, tag name.Tag) error {
	layers, err := image.Layers()
	if err != nil {
		return err
	}
	repository := filepath.Join(s.root, "docker/registry/v2/repositories", tag.RepositoryStr())
	for _, l := range layers {
		digest, err := l.Digest()
		if err != nil {
			return err
		}
		if err := s.blob(digest, l.Compressed); err != nil {
			return err
		}
		if err := link(filepath.Join(repository, "_layers"), digest); err != nil {
			return err
		}
	}
	config, err := image.RawConfigFile()
	if err != nil {
		return err
	}
	configDigest, err := image.ConfigName()
	if err != nil {
		return err
	}
	manifest, err := image.RawManifest()
	if err != nil {
		return err
	}
	digest, err := image.Digest()
	if err != nil {
		return err
	}
	current := filepath.Join(repository, "_manifests/tags", tag.TagStr())
	for _, step := range []func() error{
		func() error { return s.bytes(configDigest, config) },
		func() error { return link(filepath.Join(repository, "_layers"), configDigest) },
		func() error { return s.bytes(digest, manifest) },
		func() error { return link(filepath.Join(repository, "_manifests/revisions"), digest) },
		func() error { return link(filepath.Join(current, "index"), digest) },
		func() error { return write(filepath.Join(current, "current/link"), []byte(digest.String())) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (s storage) path(digest v1.Hash) string {
	return filepath.Join(s.root, "docker/registry/v2/blobs", digest.Algorithm, digest.Hex[:2], digest.Hex, "data")
}

func (s storage) bytes(digest v1.Hash, content []byte) error { return write(s.path(digest), content) }

func (s storage) blob(digest v1.Hash, open func() (io.ReadCloser, error)) error {
	path := s.path(digest)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	in, err := open()
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	return out.Close()
}

// link is how the storage says that something in a folder's scope exists.
func link(scope string, digest v1.Hash) error {
	return write(filepath.Join(scope, digest.Algorithm, digest.Hex, "link"), []byte(digest.String()))
}

func write(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o644)
}
