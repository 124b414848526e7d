/* What readers of any format share. */
#pragma once
#include <fsdp/ckpt.h>

/* "[2, 3]" into `text`, cut to fit. */
void fsdp_checkpoint_shape_text(const int64_t *shape, int ndim, char *text, size_t bytes);
