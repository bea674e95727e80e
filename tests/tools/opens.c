/* SPDX-License-Identifier: MIT */
/* opens LIBRARY PREFIX - opens a driver by its name, as programs do that know nothing of hoist, and
 * prints how many devices it shows.  PREFIX is "cu" or "hip". */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
	unsigned (*init)(unsigned flags) = NULL;
	unsigned (*count)(int *ret) = NULL;
	char name[32];
	int n = -1;
	void *so = argc == 3 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
	if (so == NULL) {
		fprintf(stderr, "opens: %s\n", argc == 3 ? dlerror() : "LIBRARY PREFIX");
		return 1;
	}
	(void)snprintf(name, sizeof name, "%sInit", argv[2]);
	*(void **)&init = dlsym(so, name);
	*(void **)&count =
		dlsym(so, strcmp(argv[2], "cu") == 0 ? "cuDeviceGetCount" : "hipGetDeviceCount");
	if (init == NULL || count == NULL || init(0) != 0 || count(&n) != 0) {
		fprintf(stderr, "opens: %s shows no devices\n", argv[1]);
		return 1;
	}
	printf("%d\n", n);
	return 0;
}
