// Package bus moves tensors between two jobs whose layouts differ, such as training and inference. It has the commands
// of Etha's tensor bus.
//
// # Pairs and batches
//
// A pair is two sides with a layout each. [InitPair] opens it at every rank of both sides. A batch is tensors that
// move together, over one pair or several. [RegisterTensors] compares what all ranks have, once for the whole batch,
// and makes the plans. From there on [Transfer] runs them in rounds: the n-th send of one side meets the n-th receive
// of the other. [QueryStatus] answers at once, and [CleanupBatch] ends the batch.
//
// # Clients and agents
//
// A [Client] gives commands to its [Agent], which is a peer of the cluster. The agent is in the same process
// ([Agent.Client]), or in one of its own that stepvan agent runs ([Dial]). An agent may serve several clients, also of
// both sides. A client has one rank of a side. The ranks have the order of [ClientOptions].Rank, or else the order of
// the agents.
//
// Commands of a client begin in their order. Those that wait for others keep only the later commands about the same
// pair or batch. Every command has a completion, and an error there never ends the agent.
//
// # Encoding
//
// [Encode] and [Decode] have the bytes that msgspec makes of the classes in Python. Meshes, placements and handles of
// tensors are MessagePack, too: nothing is pickled. The encoder and the decoder are functions of
// github.com/tinylib/msgp over byte slices. They write the shortest forms, as msgspec does, and allocate nothing
// because of what a length promises.
//
// # Plans
//
// [Redistribute] says which boxes move from which rank to which. A partial source is reduced first. Each member of a
// group reduces a share of the boxes and ships it. It does so in the order of the mesh and in the type of the source.
// No source changes. Where the types of the sides differ, elements travel in the narrower one. A direction towards a
// partial layout has no plan.
//
// The pairing of ranks happens on the board of the cluster. One agent leads each pair: it compares the registrations
// of all ranks, and says when all agents have made their plans. A failure, also the death of a client, reaches all
// agents of the batch as a letter with its reason.
//
// # Threads and memory
//
// Agent.mu guards the state of an agent. No goroutine holds it while it waits. The driver calls Agent.receive for
// letters. Commands that wait and plans have goroutines of their own, which end with the agent. The caller that waits
// for a round drives it. For a client in another process the goroutine that reads its commands does so, for a short
// time. A goroutine of the agent does the rest.
//
// The memory of registered tensors is borrowed until the batch has been cleaned up, or its client closed. The tensors
// of a client in another process lie in memory files of the agent ([Client.Empty]). So nothing is copied between the
// two, and nobody reads the memory of another process.
package bus
