// Package style holds the code and its words against the rules of the house. Its tests are a part of make check.
//
//   - size_rule_test.go: no type has more than 25 fields or 30 methods.
//   - prose_rule_test.go: comments, documents, help texts and errors use plain words, short sentences and short lines.
//   - map_rule_test.go: what ARCHITECTURE.md names exists.
package style
