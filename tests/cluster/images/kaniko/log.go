package main

import (
	"fmt"
	"time"
)

var started = time.Now()

func info(format string, arguments ...any) { line("INFO", format, arguments...) }

func warn(format string, arguments ...any) { line("WARN", format, arguments...) }

// line has the shape of the real executor's log: level, seconds since the start, text.
func line(level, format string, arguments ...any) {
	fmt.Printf("%s[%04d] %-40s \n", level, int(time.Since(started).Seconds()), fmt.Sprintf(format, arguments...))
}
