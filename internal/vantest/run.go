package vantest

import "testing"

// Run holds the vans of f to every clause, one sub-test each.
func Run(t *testing.T, f Factory) {
	t.Helper()
	caps, err := capsOf(&f)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := factories[f.Name]; !ok && !f.NoProcesses {
		t.Fatalf("vantest: %s crosses processes, but TestMain does not give it to vantest.Main; set Factory.NoProcesses if it does not", f.Name)
	}
	for _, c := range Clauses() {
		t.Run(c.title(), func(t *testing.T) {
			if caps.Lossy && c.Number != lossyClause {
				skip(t, &f, c.Name, "Caps.Lossy is true")
			}
			for _, tc := range c.cases {
				if tc.need&needLossy != 0 && !caps.Lossy {
					continue
				}
				t.Run(tc.name, func(t *testing.T) {
					if why := tc.unfit(&f, caps); why != "" {
						skip(t, &f, tc.name, why)
					}
					if found := runCase(f, c, tc); found != nil {
						t.Error(found)
					}
				})
			}
		})
	}
}
