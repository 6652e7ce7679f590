package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/frontend/dockerfile/shell"
)

const architecture = runtime.GOARCH

// parse reads a Dockerfile of one stage.
func parse(path string) (*instructions.Stage, []instructions.ArgCommand, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	tree, err := parser.Parse(file)
	if err != nil {
		return nil, nil, err
	}
	stages, metaArgs, err := instructions.Parse(tree.AST, nil)
	if err != nil {
		return nil, nil, err
	}
	if len(stages) != 1 {
		return nil, nil, fmt.Errorf("the stand-in builds one stage, not %d", len(stages))
	}
	return &stages[0], metaArgs, nil
}

// given reads NAME=VALUE flags; a name alone takes the value of the environment.
func given(flags []string) map[string]string {
	values := map[string]string{}
	for _, flag := range flags {
		name, value, found := strings.Cut(flag, "=")
		if !found {
			value = os.Getenv(name)
		}
		values[name] = value
	}
	return values
}

// fromImage is the base that FROM names, with the ARGs before it filled in.
func fromImage(stage *instructions.Stage, metaArgs []instructions.ArgCommand, flags map[string]string) (string, error) {
	known := map[string]string{}
	for _, command := range metaArgs {
		for _, arg := range command.Args {
			if value, ok := flags[arg.Key]; ok {
				known[arg.Key] = value
			} else if arg.Value != nil {
				known[arg.Key] = *arg.Value
			}
		}
	}
	from, _, err := shell.NewLex('\\').ProcessWord(stage.BaseName, environment(known))
	if err == nil && from == "" {
		err = fmt.Errorf("base name (%s) should not be blank", stage.BaseName)
	}
	return from, err
}

func environment(values map[string]string) shell.EnvGetter {
	pairs := make([]string, 0, len(values))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		pairs = append(pairs, name+"="+values[name])
	}
	return shell.EnvsFromSlice(pairs)
}

func firstThatNeedsFiles(stage *instructions.Stage) instructions.Command {
	for _, command := range stage.Commands {
		switch command.(type) {
		case *instructions.RunCommand, *instructions.CopyCommand, *instructions.AddCommand, *instructions.WorkdirCommand:
			return command
		}
	}
	return nil
}

// script is the program and arguments of a RUN.
func script(run *instructions.RunCommand, shell []string) ([]string, error) {
	if len(run.FlagsUsed) > 0 {
		return nil, errors.New("the stand-in knows no flags of RUN")
	}
	if !run.PrependShell {
		return run.CmdLine, nil
	}
	text := strings.Join(run.CmdLine, " ")
	for _, document := range run.Files {
		if len(run.Files) == 1 && strings.TrimPrefix(text, "<<") == document.Name {
			text = document.Data // the document alone is the script
			break
		}
		text += "\n" + document.Data + document.Name
	}
	return append(slices.Clone(shell), text), nil
}
