package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/spf13/cobra"
)

func pushCommand() *cobra.Command {
	var o registryOptions
	cmd := &cobra.Command{
		Use:   "push <path>",
		Short: "Push a built image, an OCI layout (folder) or a docker-save archive (file), to a registry",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			announce()
			if len(o.destinations) == 0 {
				return errors.New("at least one --destination is required")
			}
			path, err := filepath.Abs(args[0])
			if err != nil {
				return fmt.Errorf("resolving path: %w", err)
			}
			if _, err := os.Stat(path); err != nil {
				return fmt.Errorf("path %s not readable: %w", path, err)
			}
			if err := o.checkPushPermissions(); err != nil {
				return fmt.Errorf("checking push permissions: %w", err)
			}
			image, err := load(path)
			if err != nil {
				return fmt.Errorf("loading image: %w", err)
			}
			if err := o.push(cmd.Context(), image); err != nil {
				return fmt.Errorf("pushing image: %w", err)
			}
			return nil
		},
	}
	o.flags(cmd.Flags())
	return cmd
}

// load opens the one image of an OCI layout or of a docker-save archive.
func load(path string) (v1.Image, error) {
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
		return tarball.ImageFromPath(path, nil)
	}
	index, err := layout.ImageIndexFromPath(path)
	if err != nil {
		return nil, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	if len(manifest.Manifests) != 1 {
		return nil, fmt.Errorf("%s holds %d images, not one", path, len(manifest.Manifests))
	}
	return index.Image(manifest.Manifests[0].Digest)
}
