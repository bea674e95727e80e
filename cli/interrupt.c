/* SPDX-License-Identifier: MIT */
/* cli/interrupt.c - Ctrl-C and SIGTERM.
 * The contract is in cli/interrupt.h. */
#include "config.h"

#include "cli/interrupt.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t received;

static void notice(int number)
{
	received = number;
}

void interrupt_watch(void)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
	for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
		struct sigaction before;
		struct sigaction action = {.sa_handler = notice,
					   .sa_flags = (int)(SA_RESTART | SA_RESETHAND)};
		(void)sigemptyset(&action.sa_mask);
		if (sigaction(signals[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
			(void)sigaction(signals[i], &action, NULL);
	}
}

int interrupted(void)
{
	return received;
}

void interrupt_die(void)
{
	int number = received;
	if (number == 0)
		return;
	(void)signal(number, SIG_DFL);
	(void)raise(number);
}
