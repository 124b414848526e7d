/* A unit of matrices and vectors. A test chooses which of them its forward reads, and in which
 * order. For tests of Note [Sections] in src/fsdp/grad_buffer.h. */
#pragma once
#include "tests/fsdp/tree.h"

enum {
    READER_WIDTH = 32, /* matrices "abcd" are [WIDTH, WIDTH]; each fills a section */
    READER_LARGE = 4,
    READER_SMALL_ROWS = 4, /* "ef" are [SMALL_ROWS, WIDTH]; they share a section */
    READER_LEAST_ROWS = 2, /* "g" is [LEAST_ROWS, WIDTH] */
    READER_MATRICES = 7,
    READER_MOST_READS = 8
};

/* Bytes of the gradient of "a". */
static const int64_t reader_matrix = READER_WIDTH * READER_WIDTH * (int64_t)sizeof(float);

typedef struct reader {
    fsdp_parameter *w[READER_MATRICES], *bias[READER_MATRICES];
    char program[READER_MOST_READS + 1];
    bool checkpointed; /* each read is a checkpointed part */
    bool is_one_part;  /* all reads together are one checkpointed part */
} reader;

/* `mesh` NULL: shard over the group. `in_sections`: use sections although the unit is small. */
FSDP_MUST_CHECK fsdp_status reader_open(fsdp_group *group, const fsdp_device_mesh *mesh,
                                        bool in_sections, trainee *m);
/* Set what the forward reads, in this order. 'a' is a matrix; 'A' is the same with its bias, in a
 * linear layer with activation; 'H' is "d" as the head of a loss, which writes its gradient in
 * forward; 'X' fails in backward. */
void reader_set(const trainee *m, const char *program, bool checkpointed);
reader *reader_of(const trainee *m);
/* A forward on `tape`. The caller runs backward from its loss, then closes *s. */
FSDP_MUST_CHECK fsdp_status reader_forward_on(trainee *m, fsdp_tape *tape, const tree_call *call,
                                              fsdp_scope **s, fsdp_tensor **loss);
/* Forward and backward. */
FSDP_MUST_CHECK fsdp_status reader_micro_step(trainee *m, const tree_call *call);
/* The same, for a step of one micro-step. */
FSDP_MUST_CHECK fsdp_status reader_step(trainee *m, int leaf);
/* SGD. There are no gradients afterwards. */
FSDP_MUST_CHECK fsdp_status reader_update(trainee *m);
