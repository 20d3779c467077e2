package postoffice

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDisagreement(t *testing.T) {
	a := []Setting{{"A", "1"}, {"B", ""}, {"C", "x"}}
	require.NoError(t, disagreement(a, []Setting{{"C", "x"}, {"A", "1"}, {"B", ""}}))
	require.EqualError(t, disagreement(a, []Setting{{"A", "2"}, {"B", ""}, {"D", "y"}}),
		`A is "2" at the node and "1" at the scheduler; C is not known at the node and "x" at the scheduler; D is "y" at the node and not known at the scheduler: set the same value on every node`)
	var many []Setting
	for i := range 20 {
		many = append(many, Setting{fmt.Sprint("S", i), "1"})
	}
	require.ErrorContains(t, disagreement(nil, many), "S7 is \"1\" at the node and not known at the scheduler; 12 more differ:")
}
