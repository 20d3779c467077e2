/*
 * StepMesh's C++ interface for tensors, over stepvan.h and libtorch. Programs that were written for it compile
 * with this folder as an include path (C++17), and link the libraries stepvan and torch. docs/c.md tells how, and
 * what differs. A process has one node: one worker, one server, both (joint), or the scheduler. Functions throw errors.
 */
#ifndef STEPVAN_COMPAT_PS_PS_H
#define STEPVAN_COMPAT_PS_PS_H

#include "ps/af_tensor_app.h"

namespace ps {

inline Node::Role GetRole(const std::string &role)
{
	const std::pair<const char *, Node::Role> all[] = {
		{"worker", Node::WORKER}, {"server", Node::SERVER}, {"scheduler", Node::SCHEDULER}, {"joint", Node::JOINT}};
	for (const auto &known : all)
		if (role == known.first)
			return known.second;
	throw Error("GetRole", STEPVAN_INVALID, "no role is \"" + role + "\": give worker, server, scheduler or joint");
}

/* Joins the cluster that the environment names, and passes its start barrier. rank is the rank of this instance in
 * its role; with -1 the scheduler chooses one. */
inline void StartPS(int, Node::Role role, int rank, bool, const char * = nullptr)
{
	static const char *const names[] = {"server", "worker", "scheduler", "joint"};
	if (stepvan_abi_version() != STEPVAN_ABI_VERSION)
		throw Error("StartPS", STEPVAN_INVALID, "libstepvan.so is of another version than the header: compile the program again");
	Postoffice::Instance()->Start(names[role], rank);
}

/* Waits until every node has called it, then leaves. Without do_barrier it ends at once, and the others see it die.
 * A server continues to answer until then. Then the callback of RegisterExitCallback runs. */
inline void Finalize(int, Node::Role, const bool do_barrier = true)
{
	Postoffice::Instance()->Finalize(do_barrier);
	internal::Owners::Get()->Collect();
}

inline void RegisterExitCallback(const std::function<void()> &callback) { Postoffice::Get()->RegisterExitCallback(callback); }

inline int NumWorkers() { return Postoffice::Get()->num_workers(); }
inline int NumServers() { return Postoffice::Get()->num_servers(); }
inline bool IsServer() { return Postoffice::Get()->is_server(); }
inline bool IsScheduler() { return Postoffice::Get()->is_scheduler(); }

/* The rank of this node: that of its instance by the size of the group. */
inline int MyRank() { return Postoffice::Get()->my_rank() / Postoffice::Get()->group_size(); }

inline int GetNodeRank() { return GetEnv("DMLC_NODE_RANK", -1); }
inline int GetGroupSize() { return GetEnv("DMLC_GROUP_SIZE", 1); }
inline int GetGpuId() { return GetEnv("STEPMESH_GPU", 0); }

} // namespace ps

#endif
