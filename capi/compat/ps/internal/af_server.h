/* The server's side: a thread that hands requests to the program's handler. */
#ifndef STEPVAN_COMPAT_PS_INTERNAL_AF_SERVER_H
#define STEPVAN_COMPAT_PS_INTERNAL_AF_SERVER_H

#include <atomic>
#include <cstring>
#include <functional>
#include <thread>

#include "ps/internal/postoffice.h"
#include "ps/internal/tensors.h"

namespace ps {

/* What is known of one tensor of a request. */
struct KVMeta {
	bool push = false;
	int sender = 0;
	Key key = 0;
	uint64_t val_len = 0; /* bytes */
	int dtype = 0;        /* at::ScalarType */
	std::vector<int64_t> shape;
};

/* A request. It may be copied, and answered later, from any thread. */
struct AFTensorMeta {
	int sender = 0; /* number of the worker's node: Postoffice::IDtoRank */
	int sender_rank = 0;
	bool single = false;      /* one tensor in all */
	std::vector<KVMeta> push_metas;
	KeyTensorBatch push_tensors; /* may be kept and written to; one in a registered buffer changes with the next push of its key */
	std::vector<KVMeta> pull_metas;
	KeyTensorBatch pull_tensors; /* keys; the tensors are not defined */
	uint64_t handler = 0;        /* of stepvan.h */
};

/* The server of this process. It must end before Finalize does: RegisterExitCallback is the place for its delete. */
class AFTensorServer {
public:
	using AFServerRequestHandle = std::function<void(const AFTensorMeta &, AFTensorServer *)>;

	explicit AFTensorServer(int = 0) : node_(Postoffice::GetServer()->node()) {}
	AFTensorServer(const AFTensorServer &) = delete;
	AFTensorServer &operator=(const AFTensorServer &) = delete;

	virtual ~AFTensorServer()
	{
		stopping_ = true;
		if (thread_.joinable())
			thread_.join();
	}

	/* Sets the handler, once. A thread of the server then calls it for one request after the other, for each worker
	 * in the order of its requests. Earlier requests wait for this call. An exception of it
	 * ends the process. */
	void SetRequestHandle(const AFServerRequestHandle &handle)
	{
		PS_CHECK(handle) << "give a function";
		PS_CHECK(!thread_.joinable()) << "the handler was set before";
		handle_ = handle;
		thread_ = std::thread([this] { Serve(); });
	}

	/*
	 * Answers a request, once: each pull with the tensor of its key. The tensors are the caller's again when it
	 * returns. A request with one push and no pull is answered with none; one with several pushes and no pull is
	 * answered when its handler returns. A worker that is gone makes it no error.
	 */
	void Response(const AFTensorMeta &meta, KeyTensorBatch tensors = {}, bool = true)
	{
		internal::Owners::Get()->Collect();
		if (tensors.size() != meta.pull_tensors.size())
			throw Error("Response", STEPVAN_INVALID, std::to_string(tensors.size()) + " tensors for " +
			                                             std::to_string(meta.pull_tensors.size()) + " pulls: give one for each");
		std::vector<stepvan_tensor> answers;
		std::vector<at::Tensor> kept;
		for (size_t i = 0; i < meta.pull_tensors.size(); i++)
			if (!Write(meta, i, Answer(meta, i, tensors).contiguous(), &answers, &kept))
				return;
		Send(meta, answers, std::move(kept));
	}

	/* Has pushes received in place: chunk i of the tensor, cut into equal parts, is where keys[i] of worker
	 * worker_ranks[i] arrives from then on. The tensor is kept until Finalize. */
	void RegisterRecvTensor(const at::Tensor &tensor, const std::vector<int> &worker_ranks, const std::vector<Key> &keys)
	{
		PS_CHECK_EQ(worker_ranks.size(), keys.size()) << "give a key for each rank";
		std::vector<uint32_t> ranks(worker_ranks.begin(), worker_ranks.end());
		stepvan_tensor described = internal::Describe(tensor);
		uint64_t owner = internal::Owners::Get()->Keep({tensor}), registration;
		stepvan_error error;
		int32_t code = stepvan_register_recv_buffer(node_, &described, owner, ranks.data(), keys.data(), keys.size(), -1, &registration, &error);
		if (registration == 0)
			internal::Owners::Get()->Drop(owner);
		Check("RegisterRecvTensor", code, error);
	}

private:
	/* The arrays of stepvan_get_batch. */
	struct Arrays {
		std::vector<stepvan_request> requests;
		std::vector<stepvan_tensor> push, pull;
		std::vector<Key> push_keys, pull_keys;
		stepvan_batch batch = {};

		void Grow()
		{
			requests.resize(std::max<uint64_t>(batch.requests_count, 16));
			push.resize(std::max<uint64_t>(batch.push_count, 16));
			pull.resize(std::max<uint64_t>(batch.pull_count, 16));
			push_keys.resize(push.size());
			pull_keys.resize(pull.size());
			batch.requests = requests.data();
			batch.push = push.data();
			batch.push_keys = push_keys.data();
			batch.pull = pull.data();
			batch.pull_keys = pull_keys.data();
			batch.request_capacity = requests.size();
			batch.push_capacity = push.size();
			batch.pull_capacity = pull.size();
		}
	};

	/* Serve hands out requests until all workers have left, the node has stopped, or the server ends. */
	void Serve()
	{
		Arrays arrays;
		arrays.Grow();
		stepvan_error error;
		while (!stopping_) {
			internal::Owners::Get()->Collect();
			int32_t code = stepvan_get_batch(node_, STEPVAN_ANY_READY, 0, INT64_C(50000000), &arrays.batch, &error);
			switch (code) {
			case STEPVAN_OK:
				for (uint64_t i = 0; i < arrays.batch.requests_count; i++)
					HandOut(arrays, arrays.requests[i]);
				break;
			case STEPVAN_TIMEOUT:
				break;
			case STEPVAN_TOO_SMALL:
				arrays.Grow();
				break;
			case STEPVAN_CLOSED:
				return;
			default:
				PS_LOG(ERROR) << "AFTensorServer: " << error.message;
				Postoffice::Instance()->Failed(Error("AFTensorServer", error));
				return;
			}
		}
	}

	void HandOut(const Arrays &arrays, const stepvan_request &request)
	{
		AFTensorMeta meta;
		meta.sender_rank = static_cast<int>(request.worker);
		meta.sender = Postoffice::WorkerRankToID(meta.sender_rank);
		meta.single = request.pushes + request.pulls == 1;
		meta.handler = request.handler;
		for (uint32_t i = 0; i < request.pushes; i++) {
			const stepvan_tensor &t = arrays.push[request.first_push + i];
			meta.push_metas.push_back(Known(t, arrays.push_keys[request.first_push + i], true, meta.sender));
			meta.push_tensors.push_back({meta.push_metas[i].key, View(meta, t)});
		}
		for (uint32_t i = 0; i < request.pulls; i++) {
			meta.pull_metas.push_back(Known(arrays.pull[request.first_pull + i], arrays.pull_keys[request.first_pull + i], false, meta.sender));
			meta.pull_tensors.push_back({meta.pull_metas[i].key, at::Tensor()});
		}
		handle_(meta, this);
		if (AnsweredAlone(meta))
			Send(meta, {}, {});
	}

	static KVMeta Known(const stepvan_tensor &t, Key key, bool push, int sender)
	{
		KVMeta known;
		known.push = push;
		known.sender = sender;
		known.key = key;
		known.val_len = t.bytes;
		known.dtype = static_cast<int>(internal::TorchType(t.dtype));
		known.shape.assign(t.shape, t.shape + t.rank);
		return known;
	}

	/* The memory of a push as a tensor, which keeps it: also after the response. */
	at::Tensor View(const AFTensorMeta &meta, const stepvan_tensor &t) const
	{
		auto options = at::TensorOptions().dtype(internal::TorchType(t.dtype)).device(at::kCPU);
		at::IntArrayRef shape(t.shape, t.rank);
		if (t.bytes == 0)
			return at::empty(shape, options);
		uint64_t kept;
		stepvan_error error;
		Check("AFTensorServer", stepvan_keep(node_, meta.handler, t.data, &kept, &error), error);
		return at::from_blob(t.data, shape, [kept](void *) { stepvan_free(kept, nullptr); }, options);
	}

	static bool AnsweredAlone(const AFTensorMeta &meta) { return meta.pull_tensors.empty() && meta.push_tensors.size() > 1; }

	static const at::Tensor &Answer(const AFTensorMeta &meta, size_t i, const KeyTensorBatch &tensors)
	{
		Key key = meta.pull_tensors[i].key;
		if (meta.single)
			return tensors[0].val;
		for (const KeyTensor &t : tensors)
			if (t.key == key)
				return t.val;
		throw Error("Response", STEPVAN_INVALID, "no tensor has the key " + std::to_string(key) + " of pull " + std::to_string(i) + ": give one");
	}

	/* Writes an answer into the worker's memory or pooled memory; else keeps a copy. False: the node has stopped. */
	bool Write(const AFTensorMeta &meta, size_t i, const at::Tensor &tensor, std::vector<stepvan_tensor> *answers, std::vector<at::Tensor> *kept) const
	{
		stepvan_tensor from = internal::Describe(tensor), out;
		stepvan_error error;
		int32_t code = stepvan_request_out(node_, meta.handler, i, &out, &error);
		if (code == STEPVAN_CLOSED)
			return false;
		if (code == STEPVAN_WOULD_BLOCK) { /* the pool is full */
			kept->push_back(tensor.clone());
			out = internal::Describe(kept->back());
		} else {
			Check("Response", code, error);
			if (from.bytes != out.bytes)
				throw Error("Response", STEPVAN_INVALID, std::to_string(from.bytes) + " bytes for the pull of key " + std::to_string(meta.pull_tensors[i].key) +
				                                             ", which has " + std::to_string(out.bytes) + ": answer it whole");
			if (from.bytes > 0)
				std::memcpy(out.data, from.data, from.bytes);
		}
		answers->push_back(out);
		return true;
	}

	/* Sends an answer. While the queue to the worker is full it waits for what was sent before. */
	void Send(const AFTensorMeta &meta, const std::vector<stepvan_tensor> &answers, std::vector<at::Tensor> kept)
	{
		uint64_t owner = kept.empty() ? 0 : internal::Owners::Get()->Keep(std::move(kept));
		stepvan_error error;
		int32_t code;
		uint64_t response;
		while ((code = stepvan_respond(node_, meta.handler, answers.data(), answers.size(), owner, &response, &error)) == STEPVAN_WOULD_BLOCK)
			if (stepvan_response_wait(node_, last_, INT64_C(50000000), nullptr) == STEPVAN_STALE)
				std::this_thread::yield();
		if (code == STEPVAN_OK) {
			last_ = response;
			return;
		}
		if (owner != 0)
			internal::Owners::Get()->Drop(owner);
		bool over = code == STEPVAN_CLOSED || (code == STEPVAN_STALE && AnsweredAlone(meta));
		if (!over)
			throw Error("Response", error);
	}

	uint64_t node_;
	AFServerRequestHandle handle_;
	std::thread thread_;
	std::atomic<bool> stopping_{false};
	std::atomic<uint64_t> last_{0}; /* response */
};

} // namespace ps

#endif
