/* The server of every pattern: a handler, and a thread that answers what the handler has put off. */
#include <condition_variable>
#include <mutex>
#include <thread>

#include "patterns.h"

using ps::AFTensorMeta;
using ps::AFTensorServer;
using ps::KeyTensorBatch;

namespace {

/* Per worker, what its pushes without pulls held. Only the handler uses it. */
struct Tally {
	float tensors = 0, sum = 0;
};

/* Requests that are answered later, each by a thread that is not the server's. */
class Later {
public:
	void Put(const AFTensorMeta &meta)
	{
		std::lock_guard<std::mutex> lock(mu_);
		waiting_.push_back(meta);
		arrival_.notify_one();
	}

	void Close()
	{
		std::lock_guard<std::mutex> lock(mu_);
		closed_ = true;
		arrival_.notify_one();
	}

	void Run(AFTensorServer *server)
	{
		std::unique_lock<std::mutex> lock(mu_);
		for (;;) {
			arrival_.wait(lock, [this] { return closed_ || !waiting_.empty(); });
			if (waiting_.empty())
				return;
			AFTensorMeta meta = waiting_.front();
			waiting_.erase(waiting_.begin());
			lock.unlock();
			Answer(meta, server);
			lock.lock();
		}
	}

private:
	/* The pushes of a request stay readable after its answer. */
	static void Answer(const AFTensorMeta &meta, AFTensorServer *server)
	{
		KeyTensorBatch answer;
		for (const auto &pull : meta.pull_tensors)
			answer.push_back({pull.key, meta.push_tensors[0].val + 1});
		auto before = meta.push_tensors[0].val.clone();
		server->Response(meta, answer);
		EXPECT(before.equal(meta.push_tensors[0].val));
		ExpectError("a second answer", STEPVAN_STALE, [&] { server->Response(meta, answer); });
	}

	std::mutex mu_;
	std::condition_variable arrival_;
	std::vector<AFTensorMeta> waiting_;
	bool closed_ = false;
};

std::map<int, Tally> tallies;
std::map<int, std::vector<AFTensorMeta>> silent;
at::Tensor answer_buffer; /* filled again at once after each answer */
at::Tensor receive_buffer;
Later later;

/* Whether a tensor lies in the chunk of a key of this worker. */
bool InChunk(const AFTensorMeta &meta, int worker_of_list)
{
	auto chunk = (worker_of_list * kStages + static_cast<int64_t>(meta.push_tensors[0].key & 0xff)) * kNumbers;
	return meta.push_tensors[0].val.data_ptr() == receive_buffer.data_ptr<uint8_t>() + chunk;
}

void TryWrongAnswers(const AFTensorMeta &meta, AFTensorServer *server)
{
	ps::Key key = meta.pull_tensors[0].key;
	auto right = at::zeros({kNumbers});
	ExpectError("no tensor", STEPVAN_INVALID, [&] { server->Response(meta, {}); });
	ExpectError("another key", STEPVAN_INVALID, [&] { server->Response(meta, {{key + 1, right}}); });
	ExpectError("too small", STEPVAN_INVALID, [&] { server->Response(meta, {{key, at::zeros({kNumbers - 1})}}); });
	ExpectError("not defined", STEPVAN_INVALID, [&] { server->Response(meta, {{key, at::Tensor()}}); });
	server->Response(meta, {{key, at::full({1}, 4.0F).expand({kNumbers})}}); /* not contiguous: sent as it looks */
}

void Handle(const AFTensorMeta &meta, AFTensorServer *server, int rank)
{
	const auto &first = meta.push_tensors.empty() ? meta.pull_tensors[0] : meta.push_tensors[0];
	EXPECT(ps::Postoffice::IDtoRank(meta.sender) == meta.sender_rank);
	EXPECT(meta.single == (meta.push_tensors.size() + meta.pull_tensors.size() == 1));
	Tally &tally = tallies[meta.sender_rank];
	switch (PatternOf(first.key)) {
	case kEcho:
		at::mul_out(answer_buffer, first.val, at::full({1}, 2, at::kBFloat16));
		EXPECT(meta.pull_metas[0].val_len == answer_buffer.nbytes() && meta.pull_metas[0].shape[0] == kNumbers);
		server->Response(meta, {{meta.pull_tensors[0].key, answer_buffer}});
		answer_buffer.fill_(-1); /* the answer was taken when Response returned */
		break;
	case kSum: {
		auto sum = at::zeros_like(first.val);
		for (const auto &push : meta.push_tensors)
			sum += push.val;
		sum += rank;
		first.val.zero_(); /* a push is the program's, to be written to as well */
		server->Response(meta, {{meta.pull_tensors[1].key, sum}, {meta.pull_tensors[0].key, sum + 1}}); /* by key, in any order */
		break;
	}
	case kPull:
		server->Response(meta, {{first.key, at::full({kNumbers}, static_cast<float>((first.key & 0xff) * static_cast<uint64_t>(rank + 1)))}});
		break;
	case kPush:
		tally.tensors++;
		tally.sum += first.val.sum().item<float>();
		server->Response(meta);
		break;
	case kPushMany:
		for (const auto &push : meta.push_tensors) {
			tally.tensors++;
			tally.sum += push.val.sum().item<float>();
		}
		break;
	case kTally:
		server->Response(meta, {{first.key, at::tensor({tally.tensors, tally.sum})}});
		tally = {};
		break;
	case kRegistered:
		EXPECT(InChunk(meta, meta.sender_rank / ps::GetGroupSize()));
		server->Response(meta, {{meta.pull_tensors[0].key, first.val + 1}});
		break;
	case kLater:
		later.Put(meta);
		for (const auto &put_off : silent[meta.sender_rank]) {
			KeyTensorBatch answer;
			for (const auto &pull : put_off.pull_tensors)
				answer.push_back({pull.key, at::ones({1})});
			server->Response(put_off, answer);
		}
		silent.erase(meta.sender_rank);
		break;
	case kWrong:
		TryWrongAnswers(meta, server);
		break;
	case kSilent:
		silent[meta.sender_rank].push_back(meta);
		break;
	}
}

} // namespace

int Serve()
{
	auto *office = ps::Postoffice::GetServer(ps::GetGpuId());
	int rank = office->my_rank(), paired = ps::NumWorkers();
	answer_buffer = at::zeros({kNumbers}, at::kBFloat16);
	receive_buffer = at::zeros({paired * kStages * kNumbers}, at::kByte);

	/* Workers of this server's index, one per node; their chunks, one after the other. */
	std::vector<int> ranks;
	std::vector<ps::Key> keys;
	for (int node = 0; node < paired; node++)
		for (uint64_t stage = 0; stage < kStages; stage++) {
			ranks.push_back(node * ps::GetGroupSize() + rank % ps::GetGroupSize());
			keys.push_back(KeyOf(kRegistered, stage));
		}
	auto *server = new AFTensorServer(ps::GetGpuId());
	server->RegisterRecvTensor(receive_buffer, ranks, keys);
	ExpectError("a registration that does not divide", STEPVAN_INVALID, [&] {
		server->RegisterRecvTensor(at::zeros({7}, at::kByte), {ranks[0], ranks[0]}, {KeyOf(kRegistered, 90), KeyOf(kRegistered, 91)});
	});
	server->SetRequestHandle([rank](const AFTensorMeta &meta, AFTensorServer *s) { Handle(meta, s, rank); });
	std::thread answering([server] { later.Run(server); });

	bool called = false;
	ps::RegisterExitCallback([&] {
		called = true;
		later.Close();
		answering.join();
		delete server;
	});
	office->Barrier(0, kEveryone);
	ps::Finalize(0, ps::Node::SERVER, true);
	EXPECT(called);
	EXPECT(ps::internal::Owners::Get()->size() == 0);
	std::cout << "server " << rank << ": every worker was answered" << std::endl;
	return 0;
}
