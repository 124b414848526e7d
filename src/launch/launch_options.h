/* The options of `fsdp launch`: those of torchrun and those of `accelerate launch`, with the keys
 * of Accelerate's configuration files. cmd_launch.c reads them and starts the ranks. */
#pragma once
#include <fsdp/options.h>

/* The values of the options that `accelerate launch` has and torchrun does not have. */
typedef struct fsdp_accelerate_config {
    int distributed_type; /* fsdp_accelerate_type */
    int mixed_precision;  /* index into fsdp_accelerate_precisions */
    int fp8_backend;      /* index into fsdp_accelerate_fp8_backends */
    bool fp8_all_gather, fp8_pad_inner_dim;
    int dynamo_backend;
    bool use_fsdp, multi_gpu, debug, enable_cpu_affinity, fp16, use_parallelism_config;
    bool dynamo_use_fullgraph, dynamo_use_dynamic, dynamo_use_regional_compilation;
    const char *dynamo_mode;
    fsdp_option_list gpu_ids;
    int fsdp_version; /* 0 for FSDP1, 1 for FSDP2 */
    int sharding_strategy, auto_wrap_policy, backward_prefetch, state_dict_type;
    int reshard_after_forward; /* 0: false; 1: true; more: a number of ranks; negative: -1 -
                                  fsdp_sharding_strategy */
    int64_t min_num_params;
    bool wraps_by_size; /* the policy is SIZE_BASED_WRAP only because min_num_params was given */
    bool offload_params, forward_prefetch, use_orig_params, cpu_ram_efficient_loading;
    bool sync_module_states, activation_checkpointing, activation_checkpointing_offload;
    fsdp_option_list transformer_layer_cls_to_wrap;
    const char *ignored_modules;
    int dp_replicate_size, dp_shard_size;
} fsdp_accelerate_config;

/* The values of all options. */
typedef struct fsdp_launch_config {
    const char *num_processes; /* NULL: not given */
    const char *nproc, *nnodes, *rdzv_id, *role, *master_addr, *log_dir, *redirects, *tee;
    const char *log_line_prefix_template;
    const char *rdzv_endpoint, *rdzv_backend, *rdzv_conf, *local_addr; /* NULL: not given */
    const char *hosts, *hostfile, *job_secret_file;                    /* NULL: not given */
    int node_rank, master_port, max_restarts, bind, omp_num_threads, mpi;
    double shutdown_timeout_s;
    bool standalone, module, no_python, cpu;
    fsdp_option_list local_ranks_filter;
    fsdp_accelerate_config accelerate;
    int n_ranks; /* number of ranks of this host, computed from nproc or num_processes */
    int least_nodes,
        most_nodes; /* least and largest number of hosts in --nnodes; 0: --nnodes is not valid */
    bool has_node_rank; /* true: the user gave --node-rank */
    /* From --rdzv-conf: how long the hosts wait for the least number of hosts, and then for more.
     */
    double join_timeout_s, last_call_s;
    bool is_accelerate;   /* a file or a flag of `accelerate launch` was given */
    bool may_change_port; /* master_port is only a default: take a free port if it is in use */
    char run_id[40];      /* a random run id, to which rdzv_id then points; "": none was made */
} fsdp_launch_config;

enum {
    FSDP_ACCELERATE_PRECISION_FP8 = 1 /* index of "fp8" in fsdp_accelerate_precisions */
};
extern const char *const fsdp_accelerate_precisions[];
/* The precisions again, each with all spellings that files and flags may have. */
extern const char *const fsdp_accelerate_precision_choices[];
extern const char *const fsdp_accelerate_fp8_backends[];

const fsdp_options_spec *fsdp_launch_options(void);
