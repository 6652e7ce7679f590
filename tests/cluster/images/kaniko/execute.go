package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/shell"
)

// execute carries out one instruction.
func (b *builder) execute(ctx context.Context, command instructions.Command, flags map[string]string) error {
	if expandable, ok := command.(instructions.SupportsSingleWordExpansion); ok {
		lexer := shell.NewLex('\\')
		expand := func(word string) (string, error) {
			result, _, err := lexer.ProcessWord(word, environment(b.variables()))
			return result, err
		}
		if err := expandable.Expand(expand); err != nil {
			return err
		}
	}
	info("%s", command)
	b.cache.extend(fmt.Sprint(command, b.config.Config.User, b.config.Config.Env))
	switch c := command.(type) {
	case *instructions.RunCommand:
		return b.run(ctx, c)
	case *instructions.CopyCommand:
		if c.From != "" {
			return errors.New("the stand-in copies from the build context only")
		}
		return b.copy(c, c.SourcesAndDest, c.Chown, c.Chmod)
	case *instructions.AddCommand:
		return b.copy(c, c.SourcesAndDest, c.Chown, c.Chmod)
	case *instructions.WorkdirCommand:
		return b.workdir(c)
	}
	if err := b.configure(command, flags); err != nil {
		return err
	}
	return b.record(command)
}

// configure carries out an instruction that changes only the image's configuration.
func (b *builder) configure(command instructions.Command, flags map[string]string) error {
	config := &b.config.Config
	switch c := command.(type) {
	case *instructions.EnvCommand:
		for _, pair := range c.Env {
			b.setEnv(pair.Key, pair.Value)
		}
	case *instructions.ArgCommand:
		for _, arg := range c.Args {
			if value, ok := flags[arg.Key]; ok {
				b.args[arg.Key] = value
			} else if arg.Value != nil {
				b.args[arg.Key] = *arg.Value
			}
		}
	case *instructions.LabelCommand:
		for _, pair := range c.Labels {
			b.label(pair.Key, pair.Value)
		}
	case *instructions.UserCommand:
		config.User = c.User
	case *instructions.ShellCommand:
		b.shell, config.Shell = c.Shell, c.Shell
	case *instructions.EntrypointCommand:
		config.Entrypoint = b.commandLine(c.ShellDependantCmdLine)
	case *instructions.CmdCommand:
		config.Cmd = b.commandLine(c.ShellDependantCmdLine)
	default:
		return fmt.Errorf("the stand-in does not know the instruction %s", strings.ToUpper(command.Name()))
	}
	return nil
}

func (b *builder) commandLine(line instructions.ShellDependantCmdLine) []string {
	if line.PrependShell {
		return append(slices.Clone(b.shell), strings.Join(line.CmdLine, " "))
	}
	return line.CmdLine
}

func (b *builder) label(name, value string) {
	if b.config.Config.Labels == nil {
		b.config.Config.Labels = map[string]string{}
	}
	b.config.Config.Labels[name] = value
}

func (b *builder) setEnv(name, value string) {
	env := slices.DeleteFunc(b.config.Config.Env, func(pair string) bool { return strings.HasPrefix(pair, name+"=") })
	b.config.Config.Env = append(env, name+"="+value)
}

// variables are what instructions and commands see: ENV beats ARG.
func (b *builder) variables() map[string]string {
	values := maps.Clone(b.args)
	for _, pair := range b.config.Config.Env {
		name, value, _ := strings.Cut(pair, "=")
		values[name] = value
	}
	return values
}

func (b *builder) run(ctx context.Context, c *instructions.RunCommand) error {
	line, err := script(c, b.shell)
	if err != nil {
		return err
	}
	if cached, err := b.cache.find(ctx, c); err != nil {
		return err
	} else if cached != nil {
		return b.reuse(cached, c)
	}
	info("Cmd: %s", line[0])
	info("Args: %s", line[1:])
	info("Running: %s", line)
	variables := b.variables()
	account, err := lookUp(b.config.Config.User)
	if err != nil {
		return err
	}
	if variables["HOME"] == "" {
		variables["HOME"] = account.home
	}
	if variables["PATH"] == "" {
		variables["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	}
	if err := os.Setenv("PATH", variables["PATH"]); err != nil { // where the program itself is looked for
		return err
	}
	command := exec.CommandContext(ctx, line[0], line[1:]...)
	command.Dir = "/"
	if b.config.Config.WorkingDir != "" {
		command.Dir = b.config.Config.WorkingDir
	}
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		command.Env = append(command.Env, name+"="+variables[name])
	}
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: account.credential}
	if err := command.Start(); err != nil {
		return fmt.Errorf("starting command: %w", err)
	}
	err = command.Wait()
	// What the command left running would write into the snapshot.
	_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
	if err != nil {
		return fmt.Errorf("waiting for process to exit: %w", err)
	}
	info("Taking snapshot of full filesystem...")
	if err := b.snapshot(c); err != nil || b.top == nil {
		return err
	}
	return b.cache.keep(ctx, b.top)
}

func (b *builder) workdir(c *instructions.WorkdirCommand) error {
	path := c.Path
	if !filepath.IsAbs(path) {
		path = filepath.Join("/", b.config.Config.WorkingDir, path)
	}
	b.config.Config.WorkingDir = path
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	return b.snapshot(c)
}
