/* A model against what transformers and PyTorch computed. */
#pragma once
#include "tests/models/model_case.h"

/* The model of tests/golden/<name>, its blocks and root units over t->group unless t has none, has
 * the logits, hidden states, loss and gradients of <expected>.safetensors for <inputs>.safetensors.
 * What a file may lack: hidden states. Every rank runs the same batch: the mean over ranks is its
 * gradient, rounded once. */
void model_check_golden(fsdp_test *t, const char *name, const char *inputs, const char *expected);
