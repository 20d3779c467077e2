// Package bus moves tensors between two jobs whose layouts differ, such as training and inference. It has the commands
// of Etha's tensor bus.
//
// # Commands
//
// A client gives its agent commands: [InitPair], [RegisterTensors], [Transfer], [QueryStatus] and [CleanupBatch].
// [Encode] and [Decode] have the bytes that msgspec makes of the classes in Python. Meshes, placements and handles of
// tensors are MessagePack, too: nothing is pickled.
//
// The encoder and the decoder are functions of github.com/tinylib/msgp over byte slices. They write the shortest forms,
// as msgspec does, and allocate nothing because of what a length promises.
package bus
