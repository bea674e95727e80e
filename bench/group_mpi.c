/* SPDX-License-Identifier: MIT */
/* group_mpi root|all PATTERN - what programs do that load weights with MPI: rank 0 reads the file
 * and broadcasts each piece, while it reads the next one; or each rank reads its part of the
 * pieces, and broadcasts these.  PATTERN is the path, with %d for the rank.  Prints "seconds S".
 * Built by mpicc, and run by group_machines.py. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE ((size_t)4 << 20)

static int rank, n_ranks;

static size_t piece_bytes(size_t bytes, size_t piece)
{
	size_t left = bytes - piece * PIECE;
	return left < PIECE ? left : PIECE;
}

static void must(int right, const char *what)
{
	if (!right) {
		(void)fprintf(stderr, "group_mpi: %s\n", what);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
}

/* Reads each piece that is this rank's while those before are on their way. */
static void load(int fd, size_t bytes, unsigned char *to, int all)
{
	size_t n = (bytes + PIECE - 1) / PIECE;
	MPI_Request *requests = calloc(n, sizeof *requests);
	must(requests != NULL, "memory");
	for (size_t i = 0; i < n; i++) {
		int reader = all ? (int)(i % (size_t)n_ranks) : 0;
		size_t k = piece_bytes(bytes, i);
		if (reader == rank)
			must(pread(fd, to + i * PIECE, k, (off_t)(i * PIECE)) == (ssize_t)k,
			     "read");
		must(MPI_Ibcast(to + i * PIECE, (int)k, MPI_BYTE, reader, MPI_COMM_WORLD,
				&requests[i]) == MPI_SUCCESS,
		     "MPI_Ibcast");
		for (size_t j = i < 8 ? 0 : i - 8; j <= i; j++) {
			int done;
			MPI_Test(&requests[j], &done, MPI_STATUS_IGNORE);
		}
		if (i >= 8)
			MPI_Wait(&requests[i - 8], MPI_STATUS_IGNORE);
	}
	must(MPI_Waitall((int)n, requests, MPI_STATUSES_IGNORE) == MPI_SUCCESS, "MPI_Waitall");
	free(requests);
}

int main(int argc, char **argv)
{
	char path[4096];
	struct stat about;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
	must(argc == 3, "usage: group_mpi root|all PATTERN");
	const char *mark = strstr(argv[2], "%d");
	must(mark != NULL, "PATTERN has no %d");
	(void)snprintf(path, sizeof path, "%.*s%d%s", (int)(mark - argv[2]), argv[2], rank,
		       mark + 2);
	int fd = open(path, O_RDONLY);
	must(fd >= 0 && fstat(fd, &about) == 0, path);
	(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	unsigned char *to = malloc((size_t)about.st_size);
	must(to != NULL, "memory");
	MPI_Barrier(MPI_COMM_WORLD);
	double begun = MPI_Wtime();
	load(fd, (size_t)about.st_size, to, strcmp(argv[1], "all") == 0);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		printf("seconds %.3f\n", MPI_Wtime() - begun);
	free(to);
	MPI_Finalize();
	return 0;
}
