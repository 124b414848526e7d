/* Chooses the cores that each rank may use. Ranks that do not share cores do not disturb each
 * other. Linux places a page of memory on the NUMA node of the core that touches it first. So the
 * memory of a bound rank is near its cores. */
#include <string.h>
#include <unistd.h>
#ifdef FSDP_HAVE_HWLOC
#include <hwloc.h>
#endif

#include "src/base/alloc.h"
#include "src/launch/launch.h"

/* The processors (hardware threads) that the launcher may use. Processors that share caches are
 * neighbors. Each rank gets a block of consecutive processors. */
typedef struct cpu_order {
    int *cpus; /* [count] the operating system's number of each processor */
    int *core; /* [count] core of each processor, numbered from 0 in the order of `cpus` */
    int *node; /* [count] NUMA node of each processor, numbered from 0 in the order of `cpus` */
    int count, n_cores, n_nodes;
} cpu_order;

#ifdef FSDP_HAVE_HWLOC
static int index_among(hwloc_topology_t topology, hwloc_obj_t pu, hwloc_obj_type_t type)
{
    int count = hwloc_get_nbobjs_by_type(topology, type);
    for (int i = 0; i < count; i++) {
        hwloc_obj_t object = hwloc_get_obj_by_type(topology, type, (unsigned)i);
        if (hwloc_bitmap_isset(object->cpuset, pu->os_index))
            return i;
    }
    return 0;
}

/* Fill *order with the processors in hwloc's order. In this order, the hyperthreads of a core are
 * neighbors, and cores that share a cache are neighbors. Return false if hwloc does not know the
 * topology. */
static bool order_by_topology(const cpu_set_t *allowed, cpu_order *order)
{
    hwloc_topology_t topology;
    /* Without sysfs, for example in a bare chroot, hwloc would find only the processors' ids, not
     * which cores and caches they share, and would print a warning on stderr. So do not call hwloc
     * in this case. */
    if (access("/sys/devices/system/cpu", R_OK) != 0 || hwloc_topology_init(&topology) != 0)
        return false;
    int last_core = -1, last_node = -1;
    bool loaded = hwloc_topology_load(topology) == 0;
    int count = loaded ? hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU) : 0;
    for (int i = 0; i < count && order->count < CPU_SETSIZE; i++) {
        hwloc_obj_t pu = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PU, (unsigned)i);
        if (pu->os_index >= CPU_SETSIZE || !CPU_ISSET(pu->os_index, allowed))
            continue;
        int core = index_among(topology, pu, HWLOC_OBJ_CORE);
        int node = index_among(topology, pu, HWLOC_OBJ_NUMANODE);
        order->n_cores += core != last_core;
        order->n_nodes += node != last_node;
        last_core = core;
        last_node = node;
        order->cpus[order->count] = (int)pu->os_index;
        order->core[order->count] = order->n_cores - 1;
        order->node[order->count++] = order->n_nodes - 1;
    }
    hwloc_topology_destroy(topology);
    return order->count > 0;
}
#else
static bool order_by_topology(const cpu_set_t *allowed, cpu_order *order)
{
    (void)allowed, (void)order;
    return false;
}
#endif

static void order_by_number(const cpu_set_t *allowed, cpu_order *order)
{
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, allowed))
            continue;
        order->cpus[order->count] = (int)cpu;
        order->core[order->count] = order->count;
        order->node[order->count++] = 0;
    }
    order->n_cores = order->count;
    order->n_nodes = 1;
}

/* Divide the processors among n ranks. In this file, a unit is a core, a NUMA node or a processor,
 * and no unit is split between ranks. unit_of[i] is the number of the unit that contains processor
 * i of `order`. If unit_of is NULL, each processor is a unit. Rank r gets the units [r * units / n,
 * (r + 1) * units / n). If there are fewer units than ranks, several ranks share a unit. */
static void assign_blocks(const cpu_order *order, const int *unit_of, int units, int n,
                          cpu_set_t *cpus)
{
    for (int rank = 0; rank < n; rank++) {
        int first = (int)((int64_t)rank * units / n);
        int end = (int)(((int64_t)rank + 1) * units / n);
        if (end == first)
            end = first + 1;
        CPU_ZERO(&cpus[rank]);
        for (int i = 0; i < order->count; i++) {
            int unit = unit_of ? unit_of[i] : i;
            if (unit >= first && unit < end)
                CPU_SET((size_t)order->cpus[i], &cpus[rank]);
        }
    }
}

fsdp_status fsdp_launch_bind(fsdp_launch *launch, fsdp_bind bind)
{
    cpu_set_t allowed;
    int n = launch->n_ranks;
    if (bind == FSDP_BIND_NONE || n == 1 || sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return FSDP_OK;
    if (bind == FSDP_BIND_CORE && CPU_COUNT(&allowed) < n)
        return FSDP_OK;
    int *numbers = fsdp_calloc((size_t)3 * CPU_SETSIZE, sizeof *numbers);
    launch->cpus = fsdp_calloc((size_t)n, sizeof *launch->cpus);
    if (!numbers || !launch->cpus) {
        fsdp_free(numbers);
        return fsdp_error_nomem();
    }
    cpu_order order = {
        .cpus = numbers, .core = numbers + CPU_SETSIZE, .node = numbers + 2 * CPU_SETSIZE};
    if (!order_by_topology(&allowed, &order))
        order_by_number(&allowed, &order);
    if (bind == FSDP_BIND_NUMA)
        assign_blocks(&order, order.node, order.n_nodes, n, launch->cpus);
    else if (order.n_cores >= n)
        assign_blocks(&order, order.core, order.n_cores, n, launch->cpus);
    else
        assign_blocks(&order, NULL, order.count, n, launch->cpus);
    fsdp_free(numbers);
    return FSDP_OK;
}
