/* Capture and replay of the decode step.  Everything a step reads that changes from step to step lies in device memory. */
#include "contract/err.h"
#include "device.h"

bool cuda_graph_replay(struct device *dev, int rows)
{
	if (!dev->graph[rows])
		return false;
	keep_logits(dev);
	TRY(dev, cudaGraphLaunch(dev->graph[rows], dev->stream));
	dev->counters->n[COUNT_GRAPH_REPLAYS]++;
	return true;
}

void cuda_graph_drop(struct device *dev)
{
	TRY(dev, cudaStreamSynchronize(dev->stream));
	for (int i = 0; i <= dev->limits.slots; i++)
		if (dev->graph[i]) {
			cudaGraphExec_t graph = dev->graph[i];

			dev->graph[i] = NULL;
			TRY(dev, cudaGraphExecDestroy(graph));
		}
}

void cuda_graph_begin(struct device *dev, int rows)
{
	BUG_ON(dev->graph[rows]);
	settle(dev);
	keep_logits(dev);
	TRY(dev, cudaStreamBeginCapture(dev->stream, cudaStreamCaptureModeThreadLocal));
}

/* The launches of the capture were counted where they were made; this runs them. */
void cuda_graph_end(struct device *dev, int rows)
{
	cudaGraph_t graph;
	cudaError_t e;

	settle(dev);
	TRY(dev, cudaStreamEndCapture(dev->stream, &graph));
	e = cudaGraphInstantiate(&dev->graph[rows], graph, 0);
	if (e != cudaSuccess)
		cudaGraphDestroy(graph);
	cuda_check(dev, e, "cudaGraphInstantiate");
	TRY(dev, cudaGraphDestroy(graph));
	TRY(dev, cudaGraphLaunch(dev->graph[rows], dev->stream));
}
