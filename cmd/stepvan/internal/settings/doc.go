// Package settings shows the table of settings to people and programs. The table
// itself is that of package config. All functions may be called concurrently, and
// their errors are those of the writer.
package settings
