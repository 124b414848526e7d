/* Options of `fsdp train` that say how parameters are sharded, gathered and reduced. */
#include "tests/train_config/parse.h"

/* The options of every unit for a command line. */
static fsdp_fully_shard_options shard_options_of(fsdp_test *t, const char *line)
{
    fsdp_train_config c;
    fsdp_fully_shard_options o = {0};
    fsdp_status status = parse(&c, line);
    if (status == FSDP_OK)
        fsdp_train_config_shard_options(&c, &o);
    else
        fsdp_test_fail(t, __FILE__, __LINE__, "%s: %s", line, fsdp_last_error());
    return o;
}

TEST(prefetch_and_its_limit_reach_the_units)
{
    fsdp_fully_shard_options o = shard_options_of(t, "");
    ASSERT_INT(o.backward_prefetch, FSDP_BACKWARD_PRE);
    ASSERT_INT(o.forward_prefetch, FSDP_FORWARD_IMPLICIT);
    ASSERT(!o.no_limit_all_gathers);
    o = shard_options_of(t, "--backward-prefetch BACKWARD_POST --forward-prefetch "
                            "--no-limit-all-gathers");
    ASSERT_INT(o.backward_prefetch, FSDP_BACKWARD_POST);
    ASSERT_INT(o.forward_prefetch, FSDP_FORWARD_STRICT);
    ASSERT(o.no_limit_all_gathers);
    o = shard_options_of(t, "--fsdp_backward_prefetch NO_PREFETCH --no-forward-prefetch");
    ASSERT_INT(o.backward_prefetch, FSDP_BACKWARD_NONE);
    ASSERT_INT(o.forward_prefetch, FSDP_FORWARD_NONE);
    o = shard_options_of(t, "--fsdp_backward_prefetch_policy backward_pre --fsdp_forward_prefetch "
                            "true --limit_all_gathers true");
    ASSERT_INT(o.backward_prefetch, FSDP_BACKWARD_PRE);
    ASSERT_INT(o.forward_prefetch, FSDP_FORWARD_STRICT);
    fsdp_train_config c;
    ASSERT_ERROR(parse(&c, "--backward-prefetch BACKWARD_PER"), FSDP_ERR_INVALID, "BACKWARD_PRE");
}

TEST(explicit_prefetching_is_the_tutorials_two_and_two)
{
    fsdp_train_config c;
    ASSERT_OK(parse(&c, ""));
    ASSERT(!c.explicit_prefetching && !c.forward_prefetch_depth && !c.backward_prefetch_depth);
    ASSERT_OK(parse(&c, "--explicit-prefetching"));
    ASSERT_INT(c.forward_prefetch_depth, 2);
    ASSERT_INT(c.backward_prefetch_depth, 2);
    ASSERT_OK(parse(&c, "--forward-prefetch-depth 3"));
    ASSERT(c.explicit_prefetching);
    ASSERT_INT(c.forward_prefetch_depth, 3);
    ASSERT_INT(c.backward_prefetch_depth, 0);
    ASSERT_ERROR(parse(&c, "--no-explicit-prefetching --backward-prefetch-depth 1"),
                 FSDP_ERR_INVALID, "--no-explicit-prefetching contradicts --backward-prefetch");
}

TEST(classes_left_out_are_those_of_the_size_based_policy)
{
    fsdp_train_config c;
    ASSERT_OK(parse(&c, "--min-num-params 5 --exclude-wrap-modules A,B --force-leaf-modules C"));
    ASSERT_INT(c.named.exclude_wrap_modules.count, 2);
    ASSERT_STR(c.named.force_leaf_modules.items[0], "C");
    ASSERT_ERROR(parse(&c, "--exclude-wrap-modules A"), FSDP_ERR_INVALID,
                 "--exclude-wrap-modules is for --auto-wrap-policy SIZE_BASED_WRAP, not TRANS");
    ASSERT_ERROR(parse(&c, "--auto-wrap-policy none --force-leaf-modules A"), FSDP_ERR_INVALID,
                 "--force-leaf-modules is for --auto-wrap-policy SIZE_BASED_WRAP, not NO_WRAP");
}

TEST(what_micro_steps_communicate_is_chosen_once)
{
    fsdp_train_config c;
    ASSERT_OK(parse(&c, ""));
    ASSERT_INT(c.accumulation_mode, FSDP_ACCUMULATION_REDUCE);
    ASSERT_OK(parse(&c, "--gradient-accumulation-mode no-sync"));
    ASSERT_INT(c.accumulation_mode, FSDP_ACCUMULATION_NO_SYNC);
    ASSERT_OK(parse(&c, "--no-sync-each-batch"));
    ASSERT_INT(c.accumulation_mode, FSDP_ACCUMULATION_NO_SYNC);
    ASSERT_OK(parse(&c, "--sync_each_batch true"));
    ASSERT_INT(c.accumulation_mode, FSDP_ACCUMULATION_REDUCE);
    ASSERT_OK(parse(&c, "--gradient-accumulation-mode reduce-scatter "
                        "--sharding-strategy HYBRID_SHARD --replicas 2"));
    ASSERT_INT(c.accumulation_mode, FSDP_ACCUMULATION_REDUCE_SCATTER);
    ASSERT_ERROR(parse(&c, "--gradient-accumulation-mode reduce-scatter"), FSDP_ERR_INVALID,
                 "HYBRID_SHARD");
    ASSERT_ERROR(parse(&c, "--gradient-accumulation-mode no-sync --sync-each-batch"),
                 FSDP_ERR_INVALID, "no-sync contradicts --sync-each-batch true");
    ASSERT_ERROR(parse(&c, "--gradient-accumulation-mode reduce --no-sync-each-batch"),
                 FSDP_ERR_INVALID, "reduce contradicts --sync-each-batch false");
}

TEST(replicas_divide_the_ranks)
{
    fsdp_train_config c;
    int size;
    ASSERT_OK(parse(&c, "--sharding-strategy HYBRID_SHARD"));
    ASSERT_OK(fsdp_train_config_shard_size(&c, 8, 4, &size));
    ASSERT_INT(size, 4);
    ASSERT_OK(parse(&c, "--replicas 4"));
    ASSERT_OK(fsdp_train_config_shard_size(&c, 8, 8, &size));
    ASSERT_INT(size, 2);
    ASSERT_ERROR(fsdp_train_config_shard_size(&c, 6, 6, &size), FSDP_ERR_INVALID,
                 "--replicas 4 does not divide the 6 ranks");
    ASSERT_OK(parse(&c, "--replicas 2 --shard-size 2"));
    ASSERT_OK(fsdp_train_config_shard_size(&c, 4, 4, &size));
    ASSERT_INT(size, 2);
    ASSERT_ERROR(fsdp_train_config_shard_size(&c, 8, 8, &size), FSDP_ERR_INVALID,
                 "--replicas 2 times --shard-size 2 are 4 ranks, but there are 8");
    ASSERT_ERROR(fsdp_train_config_shard_size(&c, 3, 3, &size), FSDP_ERR_INVALID,
                 "--shard-size 2 does not divide the 3 ranks");
    /* The product is 4 + 2^32. */
    ASSERT_OK(parse(&c, "--replicas 1073741825 --shard-size 4"));
    ASSERT_ERROR(fsdp_train_config_shard_size(&c, 4, 4, &size), FSDP_ERR_INVALID,
                 "--replicas 1073741825 times --shard-size 4 are 4294967300 ranks");
}
