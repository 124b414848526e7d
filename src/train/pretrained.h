/* What fsdp_pretrained_load() (fsdp/train.h) and who notes dtypes before it must agree about. */
#pragma once
#include <fsdp/train.h>

fsdp_load_options fsdp_pretrained_load_options(const fsdp_pretrained *pretrained, uint64_t seed);
