/* A module tree whose shape and calls the test chooses, and ranks that train it: for tests of the
 * life cycle of units, their memory and traffic, and for random trees. */
#pragma once
#include <fsdp/fsdp.h>

#include "src/nn/module.h"

enum {
    TREE_ROWS = 3,
    TREE_MAX_CHILDREN = 8,
    TREE_EXAMPLE_WIDTH = 7,
    TREE_VARIANTS = 8
};

/* A module that computes x + down(gelu(up(norm(x)))) if it has parameters, then its children in
 * order, then x + linear(x, tied) if it has a tied matrix. Tests change the fields between
 * forwards. */
typedef struct tree {
    int64_t width;
    fsdp_parameter *norm, *up, *down; /* NULL: none */
    fsdp_parameter *tied;             /* [width, width] or NULL */
    float dropout;                    /* applied to the term added to x */
    int pause_us;                     /* in forward, before the parameters are read */
    int calls[TREE_MAX_CHILDREN];     /* how often child i is called; initially 1 */
    bool fail_forward, fail_backward; /* fail on purpose */
    bool die_backward;                /* SIGKILL ends the process in backward */
    bool check_unsharded;             /* fail unless the parameters have data */
} tree;

/* hidden 0: a module without parameters of its own. parent NULL: a root. */
FSDP_MUST_CHECK fsdp_status tree_add(fsdp_module *parent, const char *name, int64_t width,
                                     int64_t hidden, fsdp_module **module);
tree *tree_of(const fsdp_module *module);
/* The tree of most tests: a root (hidden 5) of two units (hidden 4 and 7), the second of which has
 * a unit inside (hidden 3). Child i of the root is fsdp_module_child(root, i). */
FSDP_MUST_CHECK fsdp_status tree_example(int64_t width, fsdp_module **root);
FSDP_MUST_CHECK fsdp_status tree_example_shard(fsdp_module *root, fsdp_group *group,
                                               fsdp_device *device,
                                               const fsdp_fully_shard_options *options);
/* Use sections in all units, however small: Note [Sections] in src/fsdp/grad_buffer.h. */
FSDP_MUST_CHECK fsdp_status tree_in_sections(fsdp_module *root);
/* Options that every property should hold with. */
extern const fsdp_fully_shard_options tree_variants[TREE_VARIANTS];

/* One rank, with its model. */
typedef struct trainee {
    fsdp_group *group; /* NULL: a world of one */
    fsdp_device *device;
    fsdp_tape *tape;
    fsdp_module *model;
    fsdp_dtype dtype; /* dtype of activations: the units' param_dtype */
    bool plain;       /* the model has no units, so its gradients are sums over leaves */
} trainee;

/* device NULL: the default, which FSDP_DEVICE sets. */
FSDP_MUST_CHECK fsdp_status trainee_open(fsdp_group *group, const char *device, fsdp_dtype dtype,
                                         trainee *t);
/* An error if anything is still allocated afterwards. */
FSDP_MUST_CHECK fsdp_status trainee_close(trainee *t);
/* Open a rank with the sharded example, on the default device. */
FSDP_MUST_CHECK fsdp_status trainee_open_example(fsdp_group *group,
                                                 const fsdp_fully_shard_options *options,
                                                 trainee *t);
/* Open a rank whose model is a root without parameters, with `blocks` (at most TREE_MAX_CHILDREN)
 * equal units of this width inside it. */
FSDP_MUST_CHECK fsdp_status trainee_open_blocks(fsdp_group *group, const char *device, int blocks,
                                                int width, const fsdp_fully_shard_options *options,
                                                trainee *t);
fsdp_module *trainee_unit(const trainee *t, const char *path);
/* Are all units of the example resharded? */
bool trainee_is_resharded(const trainee *t);
int trainee_rank(const trainee *t);
int trainee_world_size(const trainee *t);

/* Input and gradient of the output are drawn by (step, micro_batch), so any rank can compute any
 * micro-batch. */
typedef struct tree_call {
    int step, micro_batch, micro_step, n_micro_steps;
} tree_call;
/* module(input of the call), owned by s. */
fsdp_tensor *tree_forward(trainee *t, fsdp_scope *s, fsdp_module *module, const tree_call *call);
/* Forward and backward of `module` for one micro-batch. */
FSDP_MUST_CHECK fsdp_status tree_forward_backward(trainee *t, fsdp_module *module,
                                                  const tree_call *call);
/* Only the backward, from the outputs of n calls. */
FSDP_MUST_CHECK fsdp_status tree_backward(trainee *t, fsdp_tensor *const *outputs,
                                          const tree_call *calls, int n);
/* Forward without a tape. */
FSDP_MUST_CHECK fsdp_status tree_evaluate(trainee *t, fsdp_module *module, int step);
FSDP_MUST_CHECK fsdp_status tree_scope(trainee *t, fsdp_tape *tape, const tree_call *call,
                                       fsdp_scope **s);
/* Run all `leaves`, distributed over ranks and micro-steps, then SGD. */
FSDP_MUST_CHECK fsdp_status tree_step(trainee *t, int step, int leaves);
/* Plain SGD on the shards, as in an optimizer. Masters may be float32 or bfloat16. */
FSDP_MUST_CHECK fsdp_status tree_sgd(fsdp_module *model, float lr);
/* All parameters whole, in list order; freed with fsdp_free(). Collective. */
FSDP_MUST_CHECK fsdp_status tree_params(fsdp_module *model, float **values, size_t *n);
/* The gradient of a parameter, whole; NULL if it has none. */
FSDP_MUST_CHECK fsdp_status tree_full_grad(const fsdp_parameter *p, float **values);
/* An error unless all parameters are equal bit for bit. Collective. b may be NULL on ranks that
 * only contribute their parts of a, since one rank can train the reference for all. */
FSDP_MUST_CHECK fsdp_status tree_same_params(const trainee *a, const trainee *b);
