/* Workers and servers of tensors, under StepMesh's names. */
#ifndef STEPVAN_COMPAT_PS_AF_TENSOR_APP_H
#define STEPVAN_COMPAT_PS_AF_TENSOR_APP_H

#include "ps/internal/af_server.h"
#include "ps/internal/af_worker.h"
#include "ps/internal/backend.h"

#endif
