// Command gen writes docs/settings.md from the table of settings.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/stepvan/stepvan/config"
)

func main() {
	out := flag.String("o", "docs/settings.md", "file to write")
	flag.Parse()
	if err := os.WriteFile(*out, []byte(config.Markdown()), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}
