// Package config turns environment variables into Settings, once, at the start
// of a process. It is the only package that reads the environment.
//
// The struct Settings is the single source: its field tags hold the name, the
// aliases, the default, the limits and the doc line of every setting. One table
// is derived from the tags, and from that table come the parser, the output of
// `stepvan env` (Settings.Table), the environment of child processes
// (Settings.Env) and docs/settings.md (Markdown).
//
// FromEnv is pure: it sees only what it is given, and reports every mistake at
// once, each as a *stepvan.ConfigError that names the variable that the user wrote
// and says what to set. Names that look like settings but are none are warnings
// with the nearest known name.
//
// Settings is a plain value without references: copy it freely. No function of
// this package keeps state between calls, and all may be called concurrently.
// Packages below ps never import config; ps maps Settings to their options.
package config

//go:generate go run ./gen -o ../docs/settings.md
