// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/* msync FILE OFFSET: stores to 16 pages of 4 KiB that do not touch each other, and writes them with one msync(MS_SYNC). */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { PAGES = 16, STEP = 65536 };

int main(int argc, char **argv)
{
	int file = argc == 3 ? open(argv[1], O_RDWR) : -1;
	char *map;

	if (file < 0) {
		perror("msync FILE OFFSET");
		return 2;
	}
	map = mmap(NULL, (size_t)PAGES * STEP, PROT_READ | PROT_WRITE, MAP_SHARED, file,
		   strtol(argv[2], NULL, 10));
	if (map == MAP_FAILED) {
		perror("mmap");
		return 1;
	}
	for (size_t i = 0; i < PAGES; i++)
		map[i * STEP]++;
	if (msync(map, (size_t)PAGES * STEP, MS_SYNC)) {
		perror("msync");
		return 1;
	}
	return 0;
}
