import torch

import stepvan

with stepvan.Node() as node:  # reads DMLC_ROLE and the other settings from the environment
    if node.role == "worker":
        question = torch.tensor([1, 2, 3, node.worker_rank], dtype=torch.float32)
        answer = torch.empty(4)
        node.worker.push_pull([question], [1], [answer], [2]).wait()
        print(question.tolist(), "->", answer.tolist())
    elif node.role == "server":
        for batch in node.server:  # one request of every worker, until all have left
            for request in batch:
                request.respond([request.tensors[0] * 2])
