// Command kaniko is a stand-in for kaniko's executor, for tests on machines that cannot pull kaniko's own image. It has the
// command line, the exit codes and the last lines of the real one for what an ImageTemplate's build uses: one stage, built by
// unpacking the base image over the container's own root and running the commands there.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
)

func main() {
	if err := rootCommand().Execute(); err != nil {
		os.Exit(1)
	}
}

// fail ends as the real executor does: the error as the last line, and the exit code of the command that failed.
func fail(err error) {
	fmt.Println(err)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		os.Exit(exit.ExitCode())
	}
	os.Exit(1)
}
