/* Compares a model with the numbers of transformers and PyTorch. */
#pragma once
#include "tests/models/model_case.h"

/* Checks that the model of tests/golden/<name> has the logits, hidden states, loss and gradients of
 * <expected>.safetensors for <inputs>.safetensors. Its blocks and root are units over t->group,
 * unless t has none. The file may lack hidden states. Every rank runs the same batch, so the mean
 * over ranks is the batch's gradient, rounded once. */
void model_check_golden(fsdp_test *t, const char *name, const char *inputs, const char *expected);
