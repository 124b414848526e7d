/* Histograms of weights and gradients are those of one rank on any number of ranks, with replicas,
 * and for parameters that are not sharded. */
#include <string.h>

#include <fsdp/dtensor.h>

#include "src/base/alloc_testing.h"
#include "src/monitor/histograms.h"
#include "tests/fsdp/chain.h"
#include "tests/fsdp/tree.h"
#include "tests/test.h"

typedef fsdp_histogram unit_histograms[2][CHAIN_UNITS]; /* weights, gradients */

static unit_histograms expected; /* those of one rank, which takes the micro-batches of all */

static void count(fsdp_test *t, fsdp_group *group, chain *c, int micro_steps, unit_histograms found)
{
    fsdp_module *root = c->units[CHAIN_UNITS - 1];
    fsdp_parameter_list list;
    fsdp_histograms *h;
    ASSERT_OK(fsdp_module_parameters(root, false, &list));
    ASSERT_OK(fsdp_histograms_create(root, &list, group, &h));
    ASSERT_INT(fsdp_histograms_n_units(h), CHAIN_UNITS);
    ASSERT_STR(fsdp_histograms_unit(h, 0), "root");
    ASSERT_OK(fsdp_histograms_update(h, FSDP_HISTOGRAMS_OF_GRADIENTS));
    for (size_t i = 0; i < CHAIN_UNITS; i++) /* there is no gradient yet */
        ASSERT_INT(fsdp_histogram_count(fsdp_histograms_get(h, i)), 0);
    ASSERT_OK(fsdp_set_gradient_divide_factor(root, 3)); /* and not by the number of ranks */
    for (int a = 0; a < micro_steps; a++)
        ASSERT_OK(chain_micro_step(c, 0, a, micro_steps));
    for (int what = 0; what < 2; what++) {
        int64_t all = 0;
        ASSERT_OK(fsdp_histograms_update(h, (fsdp_histograms_of)what));
        for (size_t i = 0; i < CHAIN_UNITS; i++) {
            found[what][i] = *fsdp_histograms_get(h, i);
            all += fsdp_histogram_count(&found[what][i]);
        }
        ASSERT_INT(all, (int64_t)chain_total(c)); /* each value counts once */
    }
    fsdp_histograms_destroy(h);
    fsdp_parameter_list_free(&list);
}

static fsdp_status one_rank(fsdp_group *group, void *arg)
{
    fsdp_test *t = arg; /* its world size is that of the other run */
    const fsdp_fully_shard_options shard = {0};
    chain c;
    FSDP_TRY(chain_open(group, &shard, &c));
    count(t, group, &c, t->world_size, expected);
    return chain_close(&c);
}

static void run(fsdp_test *t, const fsdp_fully_shard_options *shard)
{
    static _Thread_local unit_histograms found;
    fsdp_test own = {.world_size = t->world_size};
    chain c;
    if (t->rank == 0)
        ASSERT_OK(fsdp_run_ranks(1, one_rank, &own, NULL));
    ASSERT(!own.failed);
    ASSERT_OK(fsdp_barrier(t->group));
    ASSERT_OK(chain_open(t->group, shard, &c));
    count(t, t->group, &c, 1, found);
    CHECK_HERE();
    ASSERT_OK(chain_close(&c));
    for (int what = 0; what < 2; what++)
        for (int i = 0; i < CHAIN_UNITS; i++)
            if (memcmp(&found[what][i], &expected[what][i], sizeof found[what][i]) != 0)
                FAIL("the %s of unit %d differ", what ? "gradients" : "weights", i);
    ASSERT_OK(fsdp_barrier(t->group));
}

TEST_RANKS(three_ranks_have_the_histograms_of_one, 3)
{
    run(t, &(fsdp_fully_shard_options){0});
}

TEST_RANKS(parameters_that_all_ranks_have_count_once, 2)
{
    run(t, &(fsdp_fully_shard_options){.no_shard = true});
}

TEST_RANKS(replicas_count_once, 4)
{
    fsdp_device_mesh *mesh;
    ASSERT_OK(fsdp_device_mesh_create(t->group, 2, (int[]){2, 2}, NULL, &mesh));
    run(t, &(fsdp_fully_shard_options){.mesh = mesh});
    fsdp_device_mesh_destroy(mesh);
}

/* "first" and "second" share a matrix, which therefore belongs to the root. Its name in the list of
 * parameters begins with "first". */
TEST_RANKS(a_shared_parameter_counts_in_the_unit_that_has_it, 2)
{
    enum {
        WIDTH = TREE_EXAMPLE_WIDTH
    };
    const fsdp_wrap_policy policy = {.kind = FSDP_WRAP_SIZE, .min_num_params = 1};
    trainee m;
    fsdp_parameter_list list;
    fsdp_histograms *h;
    ASSERT_OK(trainee_open(t->group, NULL, FSDP_DTYPE_F32, &m));
    ASSERT_OK(tree_example(WIDTH, &m.model));
    fsdp_module *first = trainee_unit(&m, "first"), *second = trainee_unit(&m, "second");
    ASSERT_OK(fsdp_module_add_parameter(first, "tied", 2, (int64_t[]){WIDTH, WIDTH},
                                        (fsdp_init){.std = 0.3f}, &tree_of(first)->tied));
    tree_of(second)->tied = tree_of(first)->tied;
    ASSERT_OK(fsdp_module_share_parameter(second, "tied", tree_of(first)->tied));
    ASSERT_OK(fsdp_auto_wrap(m.model, &policy, t->group, m.device, NULL));
    ASSERT_OK(fsdp_module_init(m.model, 5));
    ASSERT_OK(fsdp_module_parameters(m.model, false, &list));
    ASSERT_OK(fsdp_histograms_create(m.model, &list, t->group, &h));
    ASSERT_OK(fsdp_histograms_update(h, FSDP_HISTOGRAMS_OF_WEIGHTS));
    ASSERT_INT(fsdp_histograms_n_units(h), 4);
    for (size_t i = 0; i < 4; i++) {
        const char *name = fsdp_histograms_unit(h, i);
        fsdp_unit_info info;
        ASSERT_OK(fsdp_unit_get_info(
            i ? fsdp_module_find(m.model, name) : (const fsdp_module *)m.model, &info));
        ASSERT_INT(fsdp_histogram_count(fsdp_histograms_get(h, i)), info.numel);
    }
    fsdp_histograms_destroy(h);
    fsdp_parameter_list_free(&list);
    ASSERT_OK(trainee_close(&m));
}

TEST_RANKS(no_rank_waits_for_one_without_memory, 2)
{
    const fsdp_fully_shard_options shard = {0};
    fsdp_parameter_list list;
    fsdp_histograms *h = NULL;
    chain c;
    ASSERT_OK(chain_open(t->group, &shard, &c));
    fsdp_module *root = c.units[CHAIN_UNITS - 1];
    ASSERT_OK(fsdp_module_parameters(root, false, &list));
    fsdp_status status = FSDP_ERR_NOMEM;
    for (long n = 1; status != FSDP_OK; n++) {
        fsdp_alloc_fail_at(n);
        status = fsdp_histograms_create(root, &list, t->group, &h);
        fsdp_alloc_fail_at(0);
        ASSERT(status == FSDP_OK || status == FSDP_ERR_NOMEM);
    }
    fsdp_alloc_fail_at(t->rank == 1);
    status = fsdp_histograms_update(h, FSDP_HISTOGRAMS_OF_WEIGHTS);
    fsdp_alloc_fail_at(0);
    ASSERT_INT(status, FSDP_ERR_NOMEM);
    ASSERT_OK(fsdp_histograms_update(h, FSDP_HISTOGRAMS_OF_WEIGHTS));
    fsdp_histograms_destroy(h);
    fsdp_parameter_list_free(&list);
    ASSERT_OK(chain_close(&c));
}
