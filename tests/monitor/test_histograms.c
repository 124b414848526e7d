/* Histograms of weights and gradients are those of one rank on any number of ranks, with replicas,
 * and for parameters that are not sharded. */
#include <string.h>

#include <fsdp/dtensor.h>

#include "src/base/alloc_testing.h"
#include "src/monitor/histograms.h"
#include "tests/fsdp/chain.h"
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
