package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// storage is a folder in the layout of the registry's file system driver (distribution, version 2 paths).
type storage struct{ root string }

func (s storage) put(image v1.Image, tag name.Tag) error {
	layers, err := image.Layers()
	if err != nil {
		return err
	}
	repository := s.repository(tag)
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

// image reads back what put wrote.
func (s storage) image(tag name.Tag) (v1.Image, error) {
	current := filepath.Join(s.repository(tag), "_manifests/tags", tag.TagStr(), "current/link")
	link, err := os.ReadFile(current)
	if err != nil {
		return nil, err
	}
	digest, err := v1.NewHash(string(link))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", current, err)
	}
	raw, err := os.ReadFile(s.path(digest))
	if err != nil {
		return nil, err
	}
	manifest, err := v1.ParseManifest(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	return partial.CompressedToImage(&stored{s, raw, manifest})
}

// stored is an image of a storage as go-containerregistry asks for it.
type stored struct {
	storage
	raw      []byte
	manifest *v1.Manifest
}

func (i *stored) RawManifest() ([]byte, error)        { return i.raw, nil }
func (i *stored) MediaType() (types.MediaType, error) { return i.manifest.MediaType, nil }
func (i *stored) RawConfigFile() ([]byte, error) {
	return os.ReadFile(i.path(i.manifest.Config.Digest))
}
func (i *stored) LayerByDigest(digest v1.Hash) (partial.CompressedLayer, error) {
	for _, descriptor := range i.manifest.Layers {
		if descriptor.Digest == digest {
			return &storedLayer{i.path(digest), descriptor}, nil
		}
	}
	return nil, fmt.Errorf("no layer %s", digest)
}

type storedLayer struct {
	path       string
	descriptor v1.Descriptor
}

func (l *storedLayer) Digest() (v1.Hash, error)            { return l.descriptor.Digest, nil }
func (l *storedLayer) Size() (int64, error)                { return l.descriptor.Size, nil }
func (l *storedLayer) MediaType() (types.MediaType, error) { return l.descriptor.MediaType, nil }
func (l *storedLayer) Compressed() (io.ReadCloser, error)  { return os.Open(l.path) }

func (s storage) repository(tag name.Tag) string {
	return filepath.Join(s.root, "docker/registry/v2/repositories", tag.RepositoryStr())
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
