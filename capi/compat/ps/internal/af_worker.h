/* The worker's side: pushes tensors to the servers, and pulls their answers. */
#ifndef STEPVAN_COMPAT_PS_INTERNAL_AF_WORKER_H
#define STEPVAN_COMPAT_PS_INTERNAL_AF_WORKER_H

#include <deque>

#include "ps/internal/postoffice.h"
#include "ps/internal/tensors.h"

namespace ps {

/* The worker of this process. Any thread, between StartPS and Finalize. What goes wrong is thrown as an Error. */
class AFTensorWorker {
public:
	explicit AFTensorWorker(int = 0) : node_(Postoffice::GetWorker()->node()) {}
	AFTensorWorker(const AFTensorWorker &) = delete;
	AFTensorWorker &operator=(const AFTensorWorker &) = delete;

	/*
	 * Sends every push tensor to every server, and has each server write its pull tensors: with S
	 * servers and P pulls each, server s writes pull_tensors[s*P+i]. Returns the number to wait for. The
	 * tensors are kept until the exchange is over; what they hold must not be changed before.
	 */
	int ZBatchPushPull(KeyTensorBatch &push_tensors, KeyTensorBatch &pull_tensors, bool = true)
	{
		internal::Owners::Get()->Collect();
		std::vector<at::Tensor> kept;
		Side push, pull;
		for (const KeyTensor &t : push_tensors)
			push.Add(t.key, t.val.contiguous(), &kept);
		for (const KeyTensor &t : pull_tensors)
			pull.Add(t.key, t.val, &kept);

		stepvan_exchange exchange = {};
		exchange.push = push.tensors.data();
		exchange.push_keys = push.keys.data();
		exchange.pushes = push.keys.size();
		exchange.pull = pull.tensors.data();
		exchange.pull_keys = pull.keys.data();
		exchange.pulls = pull.keys.size();
		exchange.owner = internal::Owners::Get()->Keep(std::move(kept));
		stepvan_error error;
		uint64_t handle;
		if (stepvan_push_pull(node_, &exchange, &handle, &error) != STEPVAN_OK) {
			internal::Owners::Get()->Drop(exchange.owner);
			throw Error("ZBatchPushPull", error);
		}
		return Name(handle);
	}

	/* Waits until the servers have answered. When the limit passes, it throws STEPVAN_TIMEOUT: the exchange continues,
	 * and the program can wait again. The number stays valid as long as a handle of stepvan.h. */
	void Wait(int timestamp, uint64_t timeout_ms = 10000)
	{
		stepvan_error error;
		uint64_t handle = Find("Wait", timestamp);
		int64_t ns = static_cast<int64_t>(std::min(timeout_ms, UINT64_C(1000000000000))) * 1000000;
		Check("Wait", stepvan_wait(node_, handle, ns, &error), error);
	}

	/* The numbers of the operations of an exchange, its pushes and the pulls of one server: they end
	 * together, and so have one number. */
	std::vector<int> GetAllHandlers(int timestamp)
	{
		stepvan_error error;
		uint64_t count;
		Check("GetAllHandlers", stepvan_operations(node_, Find("GetAllHandlers", timestamp), &count, &error), error);
		return std::vector<int>(count, timestamp);
	}

	/* The stamps of request and response of a finished exchange. By the clock of GetNanosecond are start and postsend
	 * of the request, and postrecv and process of the response. The others are by the server's clock. */
	std::pair<Trace, Trace> FetchTrace(int timestamp)
	{
		stepvan_error error;
		int64_t stamps[STEPVAN_STAMPS];
		Check("FetchTrace", stepvan_trace(node_, Find("FetchTrace", timestamp), stamps, &error), error);
		return {Stamps(stamps), Stamps(stamps + 4)};
	}

private:
	struct Side {
		std::vector<stepvan_tensor> tensors;
		std::vector<Key> keys;
		void Add(Key key, const at::Tensor &tensor, std::vector<at::Tensor> *kept)
		{
			tensors.push_back(internal::Describe(tensor));
			keys.push_back(key);
			kept->push_back(tensor);
		}
	};

	static Trace Stamps(const int64_t *at)
	{
		Trace trace;
		trace.start = trace.pre_start = SinceBoot(at[0]);
		trace.postsend = SinceBoot(at[1]);
		trace.postrecv = SinceBoot(at[2]);
		trace.process = SinceBoot(at[3]);
		return trace;
	}

	/* Handles are remembered a little longer than the library's default of STEPVAN_HANDLES, at least. */
	static constexpr size_t kRemembered = 70000;

	int Name(uint64_t handle)
	{
		std::lock_guard<std::mutex> lock(mu_);
		if (order_.size() >= kRemembered) {
			int oldest = order_.front();
			order_.pop_front();
			int32_t done;
			if (stepvan_done(node_, handles_[oldest], &done, nullptr) == STEPVAN_OK && !done)
				order_.push_back(oldest);
			else
				handles_.erase(oldest);
		}
		int name = next_;
		next_ = next_ == std::numeric_limits<int>::max() ? 0 : next_ + 1;
		handles_[name] = handle;
		order_.push_back(name);
		return name;
	}

	uint64_t Find(const char *call, int timestamp)
	{
		std::lock_guard<std::mutex> lock(mu_);
		auto found = handles_.find(timestamp);
		if (found == handles_.end())
			throw Error(call, STEPVAN_STALE, "no exchange has the number " + std::to_string(timestamp) + ", or it is long over");
		return found->second;
	}

	uint64_t node_;
	std::mutex mu_;
	int next_ = 0;                               /* guarded by mu_, as the following */
	std::unordered_map<int, uint64_t> handles_;
	std::deque<int> order_;                      /* of handles_, the oldest first */
};

} // namespace ps

#endif
