// Command image makes container images without a container engine: it packs a folder into a registry's storage,
// or adds programs to such an image and pushes it.
package main

import (
	"os"

	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/spf13/cobra"
)

// runtimeConfig is what the image tells the container runtime.
type runtimeConfig struct {
	env, entrypoint, command []string
	user, workingDir         string
}

func (c *runtimeConfig) flags(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&c.env, "env", nil, "NAME=VALUE; repeatable")
	cmd.Flags().StringArrayVar(&c.entrypoint, "entrypoint", nil, "a word of the entry point; repeatable")
	cmd.Flags().StringArrayVar(&c.command, "command", nil, "a word of the default command; repeatable")
	cmd.Flags().StringVar(&c.user, "user", "", "user that the container runs as")
	cmd.Flags().StringVar(&c.workingDir, "working-dir", "", "folder that the container starts in")
}

func (c *runtimeConfig) apply(image v1.Image) (v1.Image, error) {
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = "linux", architecture
	file.Config.Env = append(file.Config.Env, c.env...)
	if c.entrypoint != nil {
		file.Config.Entrypoint = c.entrypoint
	}
	if c.command != nil {
		file.Config.Cmd = c.command
	}
	if c.user != "" {
		file.Config.User = c.user
	}
	if c.workingDir != "" {
		file.Config.WorkingDir = c.workingDir
	}
	return mutate.ConfigFile(image, file)
}

func main() {
	root := &cobra.Command{Use: "image", SilenceUsage: true}
	root.AddCommand(storeCommand(), pushCommand())
	if root.Execute() != nil {
		os.Exit(1)
	}
}
