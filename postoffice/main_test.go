package postoffice

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails when anything still runs after the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
