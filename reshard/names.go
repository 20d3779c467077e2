package reshard

import (
	"strconv"
	"strings"

	"github.com/stepvan/stepvan/internal/errs"
)

// Names makes the names of one rank's parameters comparable with those of other ranks. The ranks of a pipeline count
// their layers from 0, and the ranks of an expert parallel group their experts.
type Names struct {
	// Layers has the layer_number of each layer, which counts from 1, by the path of its module: "decoder.layers.0".
	Layers map[string]int
	// Experts is how many experts the model has. EP ranks share them, and this rank is number Place of these.
	Experts, EP, Place int
}

// Resolve returns the name that the parameter has at every rank, and the number of its expert among all. The number is
// -1 for a parameter that does not belong to one expert. expert says whether the parameter belongs to experts.
func (n *Names) Resolve(name string, expert bool) (resolved string, number int, err error) {
	parts := strings.Split(name, ".")
	n.layer(parts)
	number = -1
	if expert {
		if number, err = n.expert(name, parts); err != nil {
			return "", 0, err
		}
	}
	return strings.Join(parts, "."), number, nil
}

// layer replaces the number of the innermost layer whose module the name has.
func (n *Names) layer(parts []string) {
	for i := len(parts); i > 0 && len(n.Layers) > 0; i-- {
		if at, ok := n.Layers[strings.Join(parts[:i], ".")]; ok && isNumber(parts[i-1]) {
			parts[i-1] = strconv.Itoa(at - 1)
			return
		}
	}
}

// expert replaces the number of the expert, which counts from the first expert of this rank.
func (n *Names) expert(name string, parts []string) (int, error) {
	for i, part := range parts {
		stem, digits := expertOf(parts, i)
		if digits == "" {
			continue
		}
		local, err := strconv.Atoi(digits)
		if err != nil || n.EP < 1 || n.Experts%n.EP != 0 || n.Place < 0 || n.Place >= n.EP || local >= n.Experts/n.EP {
			return 0, errs.Invalid("reshard: parameter %q has an expert that its rank cannot have (got %q with %d experts, of which place %d of %d has a share): "+
				"check num_experts and the expert parallel group", name, part, n.Experts, n.Place, n.EP)
		}
		number := n.Place*(n.Experts/n.EP) + local
		parts[i] = stem + strconv.Itoa(number)
		return number, nil
	}
	return -1, nil
}

// expertOf finds the number of an expert in part i of a name: in "weight3" and "bias3", and in "3" behind
// "local_experts".
func expertOf(parts []string, i int) (stem, digits string) {
	for _, stem := range []string{"weight", "bias"} {
		if rest, ok := strings.CutPrefix(parts[i], stem); ok && isNumber(rest) {
			return stem, rest
		}
	}
	if i > 0 && parts[i-1] == "local_experts" && isNumber(parts[i]) {
		return "", parts[i]
	}
	return "", ""
}

func isNumber(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}
