/* One unit of matrices and vectors, which its forward reads as a test says: for slots of sections
 * (Note [Sections] in src/fsdp/grad_buffer.h). */
#pragma once
#include "tests/fsdp/tree.h"

enum {
    READER_WIDTH = 32, /* of matrices "abcd" [WIDTH, WIDTH], each of which is a section; */
    READER_LARGE = 4,
    READER_SMALL_ROWS = 4, /* "ef" [SMALL_ROWS, WIDTH], which share one; */
    READER_LEAST_ROWS = 2, /* and "g" [LEAST_ROWS, WIDTH] */
    READER_MATRICES = 7,
    READER_MOST_READS = 8
};

/* Bytes of the gradient of "a". */
static const int64_t reader_matrix = READER_WIDTH * READER_WIDTH * (int64_t)sizeof(float);

typedef struct reader {
    fsdp_parameter *w[READER_MATRICES], *bias[READER_MATRICES];
    char program[READER_MOST_READS + 1];
    bool checkpointed; /* each read is a part of its own, */
    bool is_one_part;  /* or all are one */
} reader;

/* `mesh` NULL: over the group. `in_sections`: however small it is. */
FSDP_MUST_CHECK fsdp_status reader_open(fsdp_group *group, const fsdp_device_mesh *mesh,
                                        bool in_sections, trainee *m);
/* What the forward reads, in this order: 'a' is a matrix, 'A' the same with its bias in an
 * activated linear layer, 'H' is "d" as the head of a loss, which writes its gradient in forward,
 * and 'X' fails in backward. */
void reader_set(const trainee *m, const char *program, bool checkpointed);
reader *reader_of(const trainee *m);
/* A forward on `tape`, whose loss the caller's backward begins with before it closes *s. */
FSDP_MUST_CHECK fsdp_status reader_forward_on(trainee *m, fsdp_tape *tape, const tree_call *call,
                                              fsdp_scope **s, fsdp_tensor **loss);
/* Forward and backward. */
FSDP_MUST_CHECK fsdp_status reader_micro_step(trainee *m, const tree_call *call);
/* The same, for a step of one. */
FSDP_MUST_CHECK fsdp_status reader_step(trainee *m, int leaf);
/* SGD; gradients are none afterwards. */
FSDP_MUST_CHECK fsdp_status reader_update(trainee *m);
