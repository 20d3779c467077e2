/* The node of this process: StepMesh has a Postoffice per instance, and a process here is one instance. */
#ifndef STEPVAN_COMPAT_PS_INTERNAL_POSTOFFICE_H
#define STEPVAN_COMPAT_PS_INTERNAL_POSTOFFICE_H

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "ps/internal/utils.h"

namespace ps {

/* Any thread, between StartPS and Finalize. */
class Postoffice {
public:
	/* All four give the node of this process, whatever the index. */
	static Postoffice *Get() { return Started(); }
	static Postoffice *GetWorker(int = 0) { return Started(); }
	static Postoffice *GetServer(int = 0) { return Started(); }
	static Postoffice *GetScheduler() { return Started(); }

	/* Waits for the group: one instance of every node. */
	void Barrier(int customer, int group) { DoBarrier(customer, group, false); }

	/* Waits for the group: every instance, or one of every node. */
	void DoBarrier(int, int group, bool per_instance)
	{
		uint32_t groups = (group & kWorkerGroup ? STEPVAN_WORKER : 0) | (group & kServerGroup ? STEPVAN_SERVER : 0) |
		                  (group & kScheduler ? STEPVAN_SCHEDULER : 0);
		stepvan_error error;
		Check("Barrier", stepvan_barrier(node_, groups, per_instance, -1, &error), error);
	}

	/* Called by Finalize. A second one takes the place of the first. */
	void RegisterExitCallback(const std::function<void()> &callback) { exit_callback_ = callback; }

	/* The rank of this instance within its role; of a joint process that of its worker. */
	int my_rank() const { return std::max(0, info_.worker_rank >= 0 ? info_.worker_rank : info_.server_rank); }
	int group_size() const { return std::max(1, GetEnv("DMLC_GROUP_SIZE", 1)); }
	int num_workers() const { return GetEnv("DMLC_NUM_WORKER", 0); }
	int num_servers() const { return GetEnv("DMLC_NUM_SERVER", 0); }
	int num_worker_instances() const { return num_workers() * group_size(); }
	int num_server_instances() const { return num_servers() * group_size(); }
	int is_worker() const { return (info_.role & STEPVAN_WORKER) != 0; }
	int is_server() const { return (info_.role & STEPVAN_SERVER) != 0; }
	int is_scheduler() const { return info_.role == STEPVAN_SCHEDULER; }
	int verbose() const { return PS_VERBOSE; }
	std::string role_str() const { return is_scheduler() ? "scheduler" : is_server() ? "server" : "worker"; }

	/* Numbers of nodes, as in AFTensorMeta::sender. */
	static int WorkerRankToID(int rank) { return 2 * rank + 9; }
	static int ServerRankToID(int rank) { return 2 * rank + 8; }
	static int IDtoRank(int id) { return std::max(0, (id - 8) / 2); }

	/* What stepvan.h calls the node; 0 before StartPS and after Finalize. */
	uint64_t node() const { return node_; }
	const stepvan_node_info &info() const { return info_; }

	/* The halves of StartPS and Finalize. */
	void Start(const char *role, int rank);
	void Finalize(bool do_barrier);

	/* Has Finalize throw what ended a server's thread. The first cause stays. */
	void Failed(const Error &error)
	{
		std::lock_guard<std::mutex> lock(mu_);
		if (failure_.empty())
			failure_.push_back(error);
	}

	static Postoffice *Instance()
	{
		static Postoffice instance;
		return &instance;
	}

private:
	static Postoffice *Started()
	{
		if (Instance()->node_ == 0)
			throw Error("Postoffice", STEPVAN_INVALID, "this process has no node: call StartPS first");
		return Instance();
	}

	uint64_t node_ = 0;
	stepvan_node_info info_ = {};
	std::function<void()> exit_callback_;
	std::mutex mu_;
	std::vector<Error> failure_; /* none or one. Guarded by mu_ */
};

inline void Postoffice::Start(const char *role, int rank)
{
	if (node_ != 0)
		throw Error("StartPS", STEPVAN_INVALID, "this process has a node already: call Finalize first");
	std::map<std::string, std::string> settings;
	for (const auto &own : Environment::Get()->settings())
		for (const char *prefix : {"DMLC_", "STEPMESH_", "STEPVAN_", "PS_"})
			if (own.first.compare(0, std::string(prefix).size(), prefix) == 0)
				settings.insert(own);
	settings["DMLC_ROLE"] = role;
	settings["DMLC_NODE_RANK"] = "-1"; /* the argument decides, and -1 leaves it to the scheduler */
	if (rank >= 0 && std::string(role) != "scheduler") {
		settings["STEPVAN_RANK"] = std::to_string(rank);
		settings["DMLC_INSTANCE_ID"] = std::to_string(rank % group_size());
	}
	std::vector<stepvan_setting> list;
	for (const auto &setting : settings)
		list.push_back({setting.first.c_str(), setting.second.c_str()});

	stepvan_error error;
	uint64_t node = 0;
	Check("StartPS", stepvan_start(list.data(), list.size(), -1, &node, &error), error);
	Check("StartPS", stepvan_info(node, &info_, &error), error);
	node_ = node;
}

inline void Postoffice::Finalize(bool do_barrier)
{
	if (node_ == 0)
		return;
	stepvan_error stopped, closed;
	int32_t code = do_barrier ? stepvan_stop(node_, -1, &stopped) : STEPVAN_OK;
	if (exit_callback_)
		exit_callback_();
	exit_callback_ = nullptr;
	uint64_t node = node_;
	node_ = 0;
	int32_t last = stepvan_close(node, &closed);
	std::vector<Error> failure;
	{
		std::lock_guard<std::mutex> lock(mu_);
		failure.swap(failure_);
	}
	if (!failure.empty())
		throw failure[0];
	Check("Finalize", code, stopped);
	Check("Finalize", last, closed);
}

} // namespace ps

#endif
