/* Finds out which ranks of a group see the same folder. If the hosts of a job share a file system,
 * all ranks see the same folder. If each host has the folder on a disk of its own, only the ranks
 * of one host see the same folder.
 *
 * Note [Hosts' own disks]. Ranks of one host see the same folder. For ranks of different hosts,
 * fsdp_disks_find() uses files: the first rank of a host writes a file with random content, under a
 * name that no rank has ever looked up. When all ranks know that the file is written and closed,
 * the first rank of each other host opens it. That rank sees the same folder if it reads the same
 * content. Nothing depends on clocks, on device numbers or on earlier lookups of a file system. The
 * name is that of an unfinished write of the folder (Note [Names of what is unfinished] in
 * src/base/unfinished.c), so that a later run removes the file if this run is killed.
 *
 * If there are several folders (`n` > 1), the lowest rank that sees a folder is the leader of the
 * disk. The leader makes the folder there, and the ranks of the disk write their files into it.
 * Files that only rank 0 writes are sent to all leaders. When all leaders have all files, each
 * leader gives its folder the final name. A save has succeeded when all leaders have done this. So
 * if a job is killed in between, some hosts have a folder with the final name and others do not.
 * All of them still have the older folders, which are removed only later. A job that resumes uses
 * the newest folder that is complete on all hosts. It reads files of other hosts through the group
 * (src/dcp/remote_files.h). */
#pragma once
#include <limits.h>

#include <fsdp/comm.h>

typedef struct fsdp_disks {
    int n;            /* number of folders; 1: all ranks see the same one */
    int32_t *of_rank; /* [world_size] index of the folder that the rank sees; NULL if n is 1 */
    int32_t *leaders; /* [n] the lowest rank that sees the folder, ascending; NULL if n is 1 */
} fsdp_disks;

/* Find out which ranks see the same folder `path`. The parent of `path` is created if it does not
 * exist. If the ranks are on one host, this needs no communication, and `mine` is returned. If they
 * are on several hosts, the call is collective, and if one rank passes an error as `mine` or fails,
 * all ranks fail. Returns FSDP_ERR_IO if hosts do not agree: host A sees a file of host B, but host
 * B does not see the file of host A. */
FSDP_MUST_CHECK fsdp_status fsdp_disks_find(fsdp_status mine, const char *path, fsdp_group *group,
                                            fsdp_disks *disks);
void fsdp_disks_fini(fsdp_disks *disks);
/* Return true if `rank` is the leader of its disk. */
bool fsdp_disks_leads(const fsdp_disks *disks, int rank);
/* Return true if `rank` and `other` see the same folder. */
bool fsdp_disks_share(const fsdp_disks *disks, int rank, int other);
/* Set `text` on each rank to the text that the leader of the rank's disk passes. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_disks_share_path(const fsdp_disks *disks, fsdp_group *group,
                                                  char text[PATH_MAX]);
