/*
 * Programs in the manner of those that were written for StepMesh, all in one: a worker that goes through the
 * patterns, its server (server.cc) and the scheduler, as DMLC_ROLE says. With arguments it is the command line of
 * stepvan: `patterns launch -n 2w2s -- patterns`.
 */
#include "patterns.h"

using ps::AFTensorWorker;
using ps::KeyTensorBatch;

namespace {

int servers, rank;

int Exchange(AFTensorWorker *worker, KeyTensorBatch push, KeyTensorBatch pull) { return worker->ZBatchPushPull(push, pull); }

void Echo(AFTensorWorker *worker)
{
	auto push = at::rand({kNumbers}).to(at::kBFloat16);
	for (int round = 0; round < 200; round++) {
		/* Several in flight, each with its answers: one of each server. */
		std::vector<int> numbers;
		std::vector<KeyTensorBatch> answers(kStages);
		for (uint64_t stage = 0; stage < kStages; stage++) {
			for (int s = 0; s < servers; s++)
				answers[stage].push_back({KeyOf(kEcho, 100 + stage), at::zeros({kNumbers}, at::kBFloat16)});
			numbers.push_back(Exchange(worker, {{KeyOf(kEcho, stage), push}}, answers[stage]));
		}
		for (size_t stage = 0; stage < kStages; stage++) {
			worker->Wait(numbers[stage]);
			for (const auto &answer : answers[stage])
				EXPECT(answer.val.equal(push * 2));
		}
	}
}

void Times(AFTensorWorker *worker)
{
	KeyTensorBatch answers;
	for (int s = 0; s < servers; s++)
		answers.push_back({KeyOf(kEcho, 100), at::zeros({kNumbers}, at::kBFloat16)});
	timespec boot;
	clock_gettime(CLOCK_MONOTONIC, &boot);
	uint64_t before = ps::GetNanosecond();
	int number = Exchange(worker, {{KeyOf(kEcho), at::ones({kNumbers}, at::kBFloat16)}}, answers);
	worker->Wait(number);
	worker->Wait(number); /* once more returns at once */
	uint64_t after = ps::GetNanosecond();
	auto trace = worker->FetchTrace(number);
	const uint64_t mine[] = {before, trace.first.start, trace.first.postsend, trace.second.postrecv, trace.second.process, after};
	for (int i = 1; i < 6; i++)
		EXPECT(mine[i - 1] <= mine[i]);
	const uint64_t server[] = {trace.first.postrecv, trace.first.process, trace.second.start, trace.second.postsend};
	for (int i = 1; i < 4; i++)
		EXPECT(server[i - 1] != 0 && server[i - 1] <= server[i]);
	/* By the clock since boot: the two readings are a moment apart, and a year from the time since 1970. */
	EXPECT(before / 1000000000 - static_cast<uint64_t>(boot.tv_sec) < 3600);
	EXPECT(worker->GetAllHandlers(number) == std::vector<int>(2, number));
}

void Sum(AFTensorWorker *worker)
{
	for (int64_t rows = 1; rows <= 4; rows++) {
		KeyTensorBatch push, pull;
		auto sum = at::zeros({rows, kNumbers});
		for (uint64_t t = 0; t < 3; t++) {
			push.push_back({KeyOf(kSum, t), at::rand({rows, kNumbers})});
			sum += push[t].val;
		}
		auto pushed = push[0].val.clone();
		for (int s = 0; s < servers; s++)
			for (uint64_t p = 0; p < 2; p++)
				pull.push_back({KeyOf(kSum, 10 + p), at::zeros({rows, kNumbers})});
		worker->Wait(worker->ZBatchPushPull(push, pull));
		for (int s = 0; s < servers; s++) {
			float their = static_cast<float>(s * ps::GetGroupSize() + rank % ps::GetGroupSize());
			EXPECT(pull[2 * s].val.allclose(sum + their + 1)); /* server-major */
			EXPECT(pull[2 * s + 1].val.allclose(sum + their));
		}
		EXPECT(push[0].val.equal(pushed)); /* what the server writes to is its own */
	}
}

KeyTensorBatch OfEach(ps::Key key, int64_t numbers)
{
	KeyTensorBatch pull;
	for (int s = 0; s < servers; s++)
		pull.push_back({key, at::zeros({numbers})});
	return pull;
}

void Pull(AFTensorWorker *worker)
{
	for (uint64_t i = 0; i < 50; i++) {
		auto pull = OfEach(KeyOf(kPull, i), kNumbers);
		worker->Wait(Exchange(worker, {}, pull));
		for (int s = 0; s < servers; s++) {
			auto their = static_cast<float>(i * static_cast<uint64_t>(s * ps::GetGroupSize() + rank % ps::GetGroupSize() + 1));
			EXPECT(pull[s].val.eq(their).all().item<bool>());
		}
	}
}

void CheckTally(AFTensorWorker *worker, float tensors, float sum)
{
	auto tally = OfEach(KeyOf(kTally), 2);
	worker->Wait(Exchange(worker, {}, tally));
	for (const auto &t : tally)
		EXPECT(t.val.equal(at::tensor({tensors, sum})));
}

/* Pushes without pulls, that the server answers with none, and that nobody answers: their keys are free after Wait. */
void Push(AFTensorWorker *worker)
{
	for (int round = 0; round < 50; round++)
		worker->Wait(Exchange(worker, {{KeyOf(kPush), at::ones({16})}}, {}));
	CheckTally(worker, 50, 50 * 16);
	for (int round = 0; round < 50; round++)
		worker->Wait(Exchange(worker, {{KeyOf(kPushMany, 1), at::ones({16})}, {KeyOf(kPushMany, 2), at::ones({4, 4}).t()}}, {}));
	CheckTally(worker, 100, 100 * 16);
}

void Registered(AFTensorWorker *worker)
{
	for (int round = 0; round < 50; round++)
		for (uint64_t stage = 0; stage < kStages; stage++) {
			auto push = at::full({kNumbers}, round, at::kByte);
			KeyTensorBatch pull;
			for (int s = 0; s < servers; s++)
				pull.push_back({KeyOf(kRegistered, 100 + stage), at::zeros({kNumbers}, at::kByte)});
			worker->Wait(Exchange(worker, {{KeyOf(kRegistered, stage), push}}, pull));
			for (const auto &answer : pull)
				EXPECT(answer.val.equal(push + 1));
		}
}

void AnsweredLater(AFTensorWorker *worker)
{
	for (int round = 0; round < 20; round++) {
		auto push = at::rand({kNumbers});
		auto pull = OfEach(KeyOf(kLater, 100), kNumbers);
		worker->Wait(Exchange(worker, {{KeyOf(kLater), push}}, pull));
		for (const auto &answer : pull)
			EXPECT(answer.val.equal(push + 1));
	}
}

void Wrong(AFTensorWorker *worker)
{
	auto push = at::ones({16});
	auto pull = OfEach(KeyOf(kWrong, 1), kNumbers);
	worker->Wait(Exchange(worker, {{KeyOf(kWrong), push}}, pull));
	for (const auto &answer : pull)
		EXPECT(answer.val.eq(4).all().item<bool>());

	ExpectError("nothing to exchange", STEPVAN_INVALID, [&] { Exchange(worker, {}, {}); });
	ExpectError("a pull that is not contiguous", STEPVAN_INVALID, [&] { Exchange(worker, {}, {{KeyOf(kPull), at::zeros({4, 4}).t()}}); });
	ExpectError("a number that was never given", STEPVAN_STALE, [&] { worker->Wait(1 << 30); });

	/* A limit that passes is an error, and the exchange continues. */
	auto silent = OfEach(KeyOf(kSilent, 1), 1);
	int number = Exchange(worker, {{KeyOf(kSilent), push}}, silent);
	ExpectError("a limit of time", STEPVAN_TIMEOUT, [&] { worker->Wait(number, 50); });
	ExpectError("a key with an unanswered push", STEPVAN_BUSY, [&] { Exchange(worker, {{KeyOf(kSilent), push}}, silent); });
	AnsweredLater(worker);
	worker->Wait(number);
	EXPECT(silent[0].val.item<float>() == 1);

	/* A push without pulls ends when it is answered, with the refusal where it is refused. */
	number = Exchange(worker, {{KeyOf(kSilent), push}}, {});
	ExpectError("a push that is not answered", STEPVAN_TIMEOUT, [&] { worker->Wait(number, 50); });
	AnsweredLater(worker);
	worker->Wait(number);
	number = Exchange(worker, {{KeyOf(kRegistered), at::zeros({2 * kNumbers}, at::kByte)}}, {});
	ExpectError("a push that is larger than its chunk", STEPVAN_REMOTE, [&] { worker->Wait(number); });
}

} // namespace

int Work()
{
	auto *office = ps::Postoffice::GetWorker(ps::GetGpuId());
	ps::Backend::Get()->SetDevice(ps::GetGpuId());
	servers = ps::NumServers();
	rank = office->my_rank();
	AFTensorWorker worker = AFTensorWorker(ps::GetGpuId());
	office->Barrier(0, kEveryone);

	Echo(&worker);
	Times(&worker);
	Sum(&worker);
	Pull(&worker);
	Push(&worker);
	Registered(&worker);
	Wrong(&worker);

	office->DoBarrier(0, ps::kWorkerGroup, true);
	ps::Finalize(0, ps::Node::WORKER, true);
	EXPECT(ps::internal::Owners::Get()->size() == 0);
	std::cout << "worker " << rank << ": every answer was right" << std::endl;
	return 0;
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return stepvan_main(argc - 1, argv + 1, 1, argv);
	auto role = ps::GetRole(PS_CHECK_NOTNULL(ps::Environment::Get()->find("DMLC_ROLE")));
	int device = ps::GetGpuId(), node = ps::GetNodeRank();
	ps::StartPS(0, role, role == ps::Node::SCHEDULER ? -1 : node * ps::GetGroupSize() + device, true);
	if (role == ps::Node::WORKER)
		return Work();
	if (role == ps::Node::SERVER)
		return Serve();
	ps::Finalize(0, role, true);
	return 0;
}
