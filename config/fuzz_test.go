package config

import (
	"errors"
	"strings"
	"testing"

	"github.com/stepvan/stepvan"
)

// FuzzFromEnv feeds environments, one NAME=value a line: nothing panics, every
// mistake names a variable, and what is accepted survives Env and FromEnv.
func FuzzFromEnv(f *testing.F) {
	for _, extra := range []string{
		"", "STEPVAN_VAN=rdma DMLC_LOCAL=1", "DMLC_ROLE=peer STEPVAN_NUM_PEER=2 DMLC_NUM_WORKER=", "DMLC_PS_ROOT_URI=[::1]", "PS_HEARTBEAT_TIMEOUT=0.003 PS_HEARTBEAT_INTERVAL=",
		"STEPVAN_POOL_BYTES=3T STEPVAN_BATCH=k STEPVAN_BATCH_MIN=1", "STEPMESH_GPU=-1 DMLC_NODE_RANK=999999 DMLC_GROUP_SIZE=65536",
	} {
		f.Add(strings.ReplaceAll(base+extra, " ", "\n"))
	}
	f.Fuzz(func(t *testing.T, text string) {
		lookup, environ := lines(strings.Split(text, "\n"))
		s, _, err := FromEnv(lookup, environ)
		if err != nil {
			for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
				var c *stepvan.ConfigError
				if !errors.As(e, &c) || c.Key == "" || c.Reason == "" {
					t.Fatalf("mistake without name or reason: %v", e)
				}
			}
			return
		}
		if err := s.Validate(); err != nil {
			t.Fatalf("accepted, but not valid: %v", err)
		}
		lookup, environ = lines(s.Env())
		again, _, err := FromEnv(lookup, environ)
		if err != nil || again != s {
			t.Fatalf("round trip: %v\n%+v\n%+v", err, s, again)
		}
	})
}

func lines(environ []string) (func(string) (string, bool), []string) {
	m := map[string]string{}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		m[name] = value
	}
	return func(name string) (string, bool) { v, ok := m[name]; return v, ok }, environ
}
