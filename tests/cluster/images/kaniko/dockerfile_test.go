package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
)

func dockerfile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "Dockerfile")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestParseErrorsAreKanikos(t *testing.T) {
	for text, want := range map[string]string{
		"FROM a\nRUNN pip\n":                   "dockerfile parse error on line 2: unknown instruction: RUNN (did you mean RUN?)",
		"FROM a\nFROM b\n":                     "the stand-in builds one stage, not 2",
		"FROM a\nCOPY onlyone\n":               "dockerfile parse error on line 2: COPY requires at least two arguments, but only one was provided. Destination could not be determined",
		"# syntax\nFROM a\nWORKDIR /a\nUSER\n": "dockerfile parse error on line 4: USER requires exactly one argument",
	} {
		_, _, err := parse(dockerfile(t, text))
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestFromTakesArguments(t *testing.T) {
	stage, metaArgs, err := parse(dockerfile(t, "ARG BASE=ray\nARG TAG\nFROM registry.local:5000/$BASE:${TAG:-latest}\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		flags []string
		want  string
	}{
		{nil, "registry.local:5000/ray:latest"},
		{[]string{"TAG=2", "BASE=other"}, "registry.local:5000/other:2"},
	} {
		if from, err := fromImage(stage, metaArgs, given(c.flags)); err != nil || from != c.want {
			t.Errorf("%v: %q (%v), want %q", c.flags, from, err, c.want)
		}
	}
}

func TestScript(t *testing.T) {
	shell := []string{"/bin/bash", "-c"}
	for text, want := range map[string][]string{
		"RUN pip install \"a==1\" && true": {"/bin/bash", "-c", "pip install \"a==1\" && true"},
		"RUN [\"/x\", \"a b\"]":            {"/x", "a b"},
		"RUN <<E\necho 1\nE":               {"/bin/bash", "-c", "echo 1\n"},
		"RUN cat <<E\necho 1\nE":           {"/bin/bash", "-c", "cat <<E\necho 1\nE"},
	} {
		stage, _, err := parse(dockerfile(t, "FROM a\n"+text+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		if line, err := script(stage.Commands[0].(*instructions.RunCommand), shell); err != nil || !reflect.DeepEqual(line, want) {
			t.Errorf("%q: %q (%v), want %q", text, line, err, want)
		}
	}
	stage, _, err := parse(dockerfile(t, "FROM a\nRUN --mount=type=secret,id=x true\n"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := script(stage.Commands[0].(*instructions.RunCommand), shell); err == nil {
		t.Error("a flag that is not carried out must be refused")
	}
}

// What the project's renderer writes, from its snapshots, means to BuildKit's parser what its own tests say that it means.
func TestRenderedDockerfilesAreReadAsMeant(t *testing.T) {
	text, err := os.ReadFile("../../../../api/tests/snapshots/image_dockerfile__combinations.snap")
	if err != nil {
		t.Fatal(err)
	}
	cases := strings.Split(string(text), "=== ")[1:]
	if len(cases) != 32 {
		t.Fatalf("%d combinations, want 32", len(cases))
	}
	for _, c := range cases {
		present, rendered, _ := strings.Cut(c, "\n")
		rendered, _, _ = strings.Cut(rendered, "--- ")
		stage, _, err := parse(dockerfile(t, rendered))
		if err != nil {
			t.Errorf("%s: %v", present, err)
			continue
		}
		names := []string{stage.BaseName}
		for _, command := range stage.Commands {
			names = append(names, command.Name())
		}
		// The last digit is the first list: system packages, conda, pip, environment, two commands.
		want := []string{"docker.io/rayproject/ray:2.50.0"}
		for i, part := range [][]string{{"USER", "RUN", "USER"}, {"RUN"}, {"COPY", "RUN"}, {"ENV"}, {"COPY", "RUN", "COPY", "RUN"}} {
			if present[len(present)-1-i] == '1' {
				want = append(want, part...)
			}
		}
		if got := strings.ToUpper(strings.Join(names[1:], " ")); names[0] != want[0] || got != strings.Join(want[1:], " ") {
			t.Errorf("%s: %q, want %q", present, names, want)
		}
	}
}
