package faults

import "github.com/stepvan/stepvan/van"

// granter is an endpoint of a one-sided van.
type granter struct {
	*endpoint
	van.Granter // the inner one
}

// Withdraw implements van.Granter.
func (g granter) Withdraw(id van.GrantID, op van.OpID) error {
	return g.begin(func() error { return g.Granter.Withdraw(id, op) }, new(bool))
}

// viewer is an endpoint of a van with views.
type viewer struct {
	granter
	inner van.Viewer
}

// Map implements van.Viewer. The wrapper knows all views, which end when the van is killed.
func (g viewer) Map(t van.Target, n int64, rights van.Rights) (van.View, error) {
	view, err := g.inner.Map(t, n, rights)
	if err != nil {
		return van.View{}, err
	}
	ref := g.van.mapped.Add(1)
	g.van.views.Store(ref, view)
	return van.View{Bytes: view.Bytes, Holder: g.van, Ref: ref}, nil
}

// ReleaseView implements van.ViewHolder.
func (v *faultyVan) ReleaseView(w van.View) {
	if view, ok := v.views.LoadAndDelete(w.Ref); ok {
		view.(van.View).Release()
	}
}

// OwnerEnded implements van.ViewHolder. A killed van has given its views back.
func (v *faultyVan) OwnerEnded(w van.View) bool {
	view, ok := v.views.Load(w.Ref)
	return !ok || view.(van.View).OwnerEnded()
}
